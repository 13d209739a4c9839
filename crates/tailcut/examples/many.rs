//! Many calls outstanding from one thread, served by two worker threads.

use tailcut::{Client, Server};

fn main() -> Result<(), tailcut::Error> {
    let mut server = Server::bind("127.0.0.1:0")?;
    let (address, stop) = (server.local_address(), server.stop_handle());
    let serving = std::thread::spawn(move || {
        server.run_workers(2, |request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|bytes| bytes.reverse());
        })
    });

    let client = Client::connect(address)?;
    let pending: Vec<_> =
        (0..1000u64).map(|n| client.start(&n.to_be_bytes())).collect::<Result<_, _>>()?;
    for (n, call) in (0..1000u64).zip(pending) {
        assert_eq!(&call.wait()?[..], n.to_le_bytes());
    }
    println!("1000 calls, 1000 replies, {:?}", client.metrics());

    stop.stop();
    serving.join().expect("the server does not panic")
}

//! A client in ten lines: sends its arguments and prints the replies. Without a server it starts one of its own.

use tailcut::{Client, Server};

fn main() -> Result<(), tailcut::Error> {
    let mut server = Server::bind("127.0.0.1:0")?;
    let (address, stop) = (server.local_address(), server.stop_handle());
    let serving = std::thread::spawn(move || {
        server.run(|request| {
            // A client that has gone needs no answer.
            let _ = request.reply_in_place(|bytes| bytes.reverse());
        })
    });

    let client = Client::connect(address)?;
    for word in ["stressed", "drawer", "live"] {
        let reply = client.call(word.as_bytes())?;
        println!("{word} -> {}", String::from_utf8_lossy(&reply));
    }

    stop.stop();
    serving.join().expect("the server does not panic")
}

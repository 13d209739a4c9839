//! A server in fifteen lines: answers each request in capitals.

use tailcut::Server;

fn main() -> Result<(), tailcut::Error> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let mut server = Server::bind(address.as_str())?;
    println!("serving on {}", server.local_address());
    server.run(|request| {
        let capitals = request.bytes().to_ascii_uppercase();
        // A client that has gone needs no answer.
        let _ = request.reply(&capitals);
    })
}

//! A client in ten lines: sends its words to the server at the first argument and prints the
//! replies.

use tailcut::Client;

fn main() -> Result<(), tailcut::Error> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:8000".to_owned());
    let client = Client::connect(address.as_str())?;
    for word in std::env::args().skip(2) {
        let reply = client.call(word.as_bytes())?;
        println!("{word} -> {}", String::from_utf8_lossy(&reply));
    }
    Ok(())
}

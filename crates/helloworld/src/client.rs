//! A client that is greeted: the program of `tonic/client.rs` over tailcut.

use std::time::Duration;

use greeting::HelloRequest;
use greeting::greeter_client::GreeterClient;
use tailcut_services::Request;

mod greeting {
    tailcut_services::include_proto!("helloworld");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".to_owned());
    let client = GreeterClient::connect(address).await?;
    for name in std::env::args().skip(2) {
        let mut request = Request::new(HelloRequest { name });
        request.set_timeout(Duration::from_secs(1));
        match client.say_hello(request).await {
            Ok(response) => println!("{}", response.into_inner().message),
            Err(status) => println!("{:?}: {}", status.code(), status.message()),
        }
    }
    Ok(())
}

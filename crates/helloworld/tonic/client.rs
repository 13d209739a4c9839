//! A client that is greeted: over tonic.

use std::time::Duration;

use greeting::HelloRequest;
use greeting::greeter_client::GreeterClient;
use tonic::Request;

mod greeting {
    tonic::include_proto!("helloworld");
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".to_owned());
    let mut client = GreeterClient::connect(format!("http://{address}")).await?;
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

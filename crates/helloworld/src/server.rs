//! A server that greets: the program of `tonic/server.rs` over tailcut.

use std::net::SocketAddr;

use greeting::greeter_server::{Greeter, GreeterServer};
use greeting::{HelloReply, HelloRequest};
use tailcut_services::transport::Server;
use tailcut_services::{Request, Response, Status};

mod greeting {
    tailcut_services::include_proto!("helloworld");
}

struct Host;

impl Greeter for Host {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let guest = request.remote_addr();
        let name = request.into_inner().name;
        if name.is_empty() {
            return Err(Status::invalid_argument("whom am I to greet?"));
        }
        println!("greeting {name} at {guest:?}");
        Ok(Response::new(HelloReply { message: format!("Hello {name}!") }))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).unwrap_or("127.0.0.1:50051".to_owned());
    let address: SocketAddr = address.parse()?;
    Server::builder().add_service(GreeterServer::new(Host)).serve(address).await?;
    Ok(())
}

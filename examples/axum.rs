//! A language model among the routes of an application: `cargo run --example axum -- PORT`, then
//! `curl http://127.0.0.1:3000/llm/v1/models`.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use tokio::net::TcpListener;
use warploom_llm::{Model, Session};
use warploom_serve::{ServeOptions, Service, router};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = std::env::args().nth(1).map_or(Ok(3000), |port| port.parse())?;
    // The model has its queue and the thread of its scheduler; the application has the server.
    let session = Session::builder(Model::embedded()?).sequences(4).build()?;
    let service = Service::start(session, ServeOptions::default())?;
    let own = Router::new().route("/", get(|| async { "The model is at /llm/v1.\n" }));
    let app = own.nest("/llm", router(&service));

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], port))).await?;
        println!("http://{}/llm/v1", listener.local_addr()?);
        axum::serve(listener, app).await
    })?;
    // Answers that still run have ten seconds to end.
    Ok(service.stop(Duration::from_secs(10))?)
}

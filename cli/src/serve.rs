//! Runs `warploom serve`: starts the HTTP server and stops it on a signal.

use crate::Exit;
use crate::engine::{self, Loaded};
use crate::progress::{Progress, tell};
use crate::serve_args::ServeArgs;
use anyhow::{Context, bail};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use warploom_llm::Embedder;
use warploom_serve::{Limits, ServeOptions, Server, Tls};

/// Interval at which signals are checked.
const LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(args: &ServeArgs) -> anyhow::Result<Exit> {
    let ending = Arc::new(AtomicBool::new(false));
    // Before the server starts, and at the second signal, the process ends at once.
    let at_once = Arc::new(AtomicBool::new(true));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 130, at_once.clone())
            .and_then(|_| flag::register(signal, ending.clone()))
            .and_then(|_| flag::register(signal, at_once.clone()))
            .context("cannot listen for signals")?;
    }
    // Before the model is read, which takes longer.
    let tls = match (&args.tls_cert, &args.tls_key) {
        (Some(certificate), Some(key)) => Some(Tls::open(certificate, key)?),
        _ => None,
    };
    let scheme = if tls.is_some() { "https" } else { "http" };
    let (model, runtime) = engine::open_both(&args.place)?;
    tell(&runtime.startup_line());
    let variable = warploom_core::config::var(&warploom_core::config::API_KEY);
    let api_key = args.api_key.clone().or(variable);
    if !args.host.is_loopback() && api_key.is_none() {
        tell(&format!(
            "warning: {} is reachable from other machines, and without --api-key anyone can use it",
            args.host
        ));
    }
    let device = runtime.device().profile().id();
    let options = ServeOptions::default()
        .address(SocketAddr::new(args.host, args.port))
        .tls(tls)
        .model(args.alias.clone())
        .api_key(api_key)
        .cors_origin(args.cors_origin.clone())
        .sampling(args.choice.sampling(&args.place, 0))
        .seed(args.choice.fixed_seed())
        .queue(args.queue)
        .time(Duration::from_secs(args.timeout))
        .prefix_memory(args.prefix_memory)
        .keep_awake(Duration::from_secs(u64::from(args.keep_awake)))
        .limits(Limits::default().connections(args.connections));
    let progress = Progress::new(false);
    let mut show = |done, total| progress.set(done, total);
    let (server, what) = match model.config().architecture.encodes {
        true => {
            let builder = Embedder::builder(model).runtime(runtime).compute(args.place.compute);
            let embedder = builder.progress(show).build()?;
            let kind = if embedder.reranks() { "scores" } else { "vectors" };
            let what = format!("{kind} of texts of up to {} tokens", embedder.context());
            (Server::start_encoder(embedder, options)?, what)
        }
        false => {
            let loaded = Loaded::serving(&args.place, model, runtime, args.parallel, &mut show)?;
            let (sequences, context) = (args.parallel, loaded.context());
            let what = format!("{sequences} sequences of {context} positions");
            (Server::start(loaded.into_session(), options)?, what)
        }
    };
    drop(progress);
    at_once.store(false, Ordering::Relaxed);
    let (name, address) = (server.model(), server.address());
    tell(&format!("{name} on {device}: {what}; {scheme}://{address}/v1"));
    while !ending.load(Ordering::Relaxed) {
        std::thread::sleep(LOOK);
        if !server.is_alive() {
            bail!("the server stopped by itself");
        }
    }
    let running = server.queue().running();
    tell(&format!("ending: {running} answers are running, at most {} seconds", args.grace));
    server.stop(Duration::from_secs(u64::from(args.grace)))?;
    Ok(Exit::Done)
}

//! Runs `warploom rerank`: orders texts by how well they answer a query.

use crate::Exit;
use crate::embed::lines;
use crate::progress::{Progress, tell};
use crate::rerank_args::RerankArgs;
use crate::{engine, interrupt, output};
use serde_json::json;
use std::io::Write;
use warploom_llm::Embedder;
use warploom_llm::config::Pooling;

/// Texts of a step between two looks for an interrupt.
const STEP: usize = 64;
/// Characters of a text in the list.
const SHOWN: usize = 72;

pub(crate) fn run(args: &RerankArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let texts = lines(&args.texts, args.file.as_deref())?;
    let (model, runtime) = engine::open_both(&args.place.place())?;
    let line = runtime.startup_line();
    let mut embedder = {
        let progress = Progress::new(false);
        Embedder::builder(model)
            .runtime(runtime)
            .pooling(Pooling::Score)
            .truncate(args.truncate)
            .compute(args.place.compute)
            .progress(|done, total| progress.set(done, total))
            .build()?
    };
    if !args.json {
        tell(&line);
    }
    interrupt::writing();
    let mut scores = Vec::with_capacity(texts.len());
    {
        let template = "reranking {bar:30} {human_pos}/{human_len} texts, {eta} left";
        let progress = Progress::of(false, template);
        for step in texts.chunks(STEP) {
            if interrupt::asked() {
                return Ok(Exit::Interrupted);
            }
            scores.extend(embedder.rerank(&args.query, step)?);
            progress.set(scores.len() as u64, texts.len() as u64);
        }
    }
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    order.truncate(args.top.unwrap_or(usize::MAX));
    let mut out = output::stdout();
    if args.json {
        let profile = embedder.device().profile();
        let rows =
            order.iter().map(|i| json!({ "index": i, "score": scores[*i], "text": texts[*i] }));
        let object = json!({
            "schema": 1,
            "model": embedder.model().file().name(),
            "device": { "id": profile.id(), "name": profile.name },
            "query": args.query,
            "results": rows.collect::<Vec<_>>(),
        });
        writeln!(out, "{object}")?;
        return Ok(Exit::Done);
    }
    for i in order {
        let shown: String = texts[i].chars().take(SHOWN).collect();
        let more = if texts[i].chars().count() > SHOWN { ".." } else { "" };
        writeln!(out, "{:6.4}  {:>4}  {shown}{more}", scores[i], i + 1)?;
    }
    Ok(Exit::Done)
}

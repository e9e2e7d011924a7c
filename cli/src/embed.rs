//! Runs `warploom embed`: prints vectors of texts, or how close the texts are.

use crate::Exit;
use crate::embed_args::EmbedArgs;
use crate::progress::{Progress, tell};
use crate::{engine, interrupt, output};
use anyhow::{Context, bail};
use serde_json::{Value, json};
use std::io::{IsTerminal, Read, Write};
use std::path::Path;
use warploom_llm::{Embedder, cosine};

/// Texts of a step between two looks for an interrupt.
const STEP: usize = 64;
/// Most texts whose cosines are printed.
const MOST_PAIRS: usize = 16;
/// Characters of a text in the table.
const SHOWN: usize = 48;

pub(crate) fn run(args: &EmbedArgs) -> anyhow::Result<Exit> {
    interrupt::listen()?;
    let texts = lines(&args.texts, args.file.as_deref())?;
    let place = args.place.place();
    let (model, runtime) = engine::open_both(&place)?;
    let line = runtime.startup_line();
    let mut embedder = {
        let progress = Progress::new(false);
        Embedder::builder(model)
            .runtime(runtime)
            .pooling(args.pooling)
            .normalise(!args.no_normalize)
            .truncate(args.truncate)
            .compute(args.place.compute)
            .progress(|done, total| progress.set(done, total))
            .build()?
    };
    if let Some(count) = args.dimensions
        && count > embedder.width()
    {
        bail!("--dimensions {count}: vectors of this model have {}", embedder.width());
    }
    if !args.json {
        tell(&line);
    }
    interrupt::writing();
    let (mut vectors, mut tokens) = (Vec::with_capacity(texts.len()), Vec::new());
    {
        let template = "embedding {bar:30} {human_pos}/{human_len} texts, {eta} left";
        let progress = Progress::of(false, template);
        for step in texts.chunks(STEP) {
            if interrupt::asked() {
                return Ok(Exit::Interrupted);
            }
            let first = tokens.len();
            for (i, text) in step.iter().enumerate() {
                let encoded = match args.kind {
                    Some(kind) => embedder.encode(&embedder.prompted(kind, text)?),
                    None => embedder.encode(text),
                };
                tokens.push(encoded.with_context(|| format!("text {}", first + i + 1))?);
            }
            let done = embedder.embed_tokens(&tokens[first..])?;
            vectors.extend(done.into_iter().map(|vector| shortened(vector, args)));
            progress.set(vectors.len() as u64, texts.len() as u64);
        }
    }
    let counts: Vec<usize> = tokens.iter().map(Vec::len).collect();
    let mut out = output::stdout();
    match args.json {
        true => writeln!(out, "{}", object(&embedder, &texts, &counts, &vectors))?,
        false => write!(out, "{}", table(&embedder, &texts, &counts, &vectors))?,
    }
    Ok(Exit::Done)
}

/// Returns the texts of the arguments, or the lines of a file or of standard input.
pub(crate) fn lines(texts: &[String], file: Option<&Path>) -> anyhow::Result<Vec<String>> {
    if !texts.is_empty() {
        return Ok(texts.to_vec());
    }
    let mut bytes = Vec::new();
    let name = match file.filter(|path| *path != Path::new("-")) {
        Some(path) => {
            bytes = std::fs::read(path).with_context(|| path.display().to_string())?;
            path.display().to_string()
        }
        None => {
            if file.is_none() && std::io::stdin().is_terminal() {
                bail!("no text: give one as an argument, or a file of lines with --file");
            }
            std::io::stdin().read_to_end(&mut bytes).context("standard input")?;
            "standard input".to_owned()
        }
    };
    let text = String::from_utf8(bytes).map_err(|e| {
        anyhow::anyhow!("{name}: not UTF-8 at byte {}", e.utf8_error().valid_up_to())
    })?;
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let lines: Vec<String> = lines.map(str::to_owned).collect();
    if lines.is_empty() {
        bail!("{name}: there is no line with a text");
    }
    Ok(lines)
}

/// Keeps the first elements of a vector, and divides it by its new length.
fn shortened(mut vector: Vec<f32>, args: &EmbedArgs) -> Vec<f32> {
    let Some(count) = args.dimensions else { return vector };
    vector.truncate(count);
    let length = vector.iter().map(|v| f64::from(*v).powi(2)).sum::<f64>().sqrt();
    if !args.no_normalize && length > 0.0 {
        vector.iter_mut().for_each(|v| *v = (f64::from(*v) / length) as f32);
    }
    vector
}

fn object(embedder: &Embedder, texts: &[String], tokens: &[usize], vectors: &[Vec<f32>]) -> Value {
    let profile = embedder.device().profile();
    let rows = texts.iter().zip(tokens).zip(vectors);
    let rows = rows.map(
        |((text, tokens), vector)| json!({ "text": text, "tokens": tokens, "embedding": vector }),
    );
    json!({
        "schema": 1,
        "model": embedder.model().file().name(),
        "device": { "id": profile.id(), "name": profile.name },
        "pooling": embedder.pooling().name(),
        "dimensions": vectors.first().map_or(0, Vec::len),
        "embeddings": rows.collect::<Vec<_>>(),
    })
}

/// Returns the texts with their tokens, and the cosine of each pair.
fn table(embedder: &Embedder, texts: &[String], tokens: &[usize], vectors: &[Vec<f32>]) -> String {
    let elements = vectors.first().map_or(0, Vec::len);
    let mut out = format!(
        "{} vectors of {elements} elements, pooling {}; --json prints them\n",
        vectors.len(),
        embedder.pooling().name()
    );
    let pairs = (2..=MOST_PAIRS).contains(&vectors.len());
    for (i, (text, tokens)) in texts.iter().zip(tokens).enumerate() {
        let cosines = vectors[..i + 1].iter().map(|other| cosine(&vectors[i], other));
        let cosines: String = match pairs {
            true => cosines.map(|cosine| format!(" {cosine:6.3}")).collect(),
            false => String::new(),
        };
        let shown: String = text.chars().take(SHOWN).collect();
        let more = if text.chars().count() > SHOWN { ".." } else { "" };
        let width = if pairs { 7 * vectors.len() } else { 0 };
        out.push_str(&format!("{:>4}{cosines:width$}  {tokens:>5} tokens  {shown}{more}\n", i + 1));
    }
    out
}

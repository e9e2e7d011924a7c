//! Graph files: JSON with a magic string and a version.
//!
//! Files are untrusted input. A loaded graph has bounded sizes and is verified, so the rest of the
//! crate may treat it like a hand-built graph.

use serde::{Deserialize, Serialize};

use super::graph::Graph;
use super::op::Op;
use super::verify::verify;
use crate::base::{Dim, Shape};
use crate::error::{Error, Result};

const MAGIC: &str = "warploom-graph";
const VERSION: u32 = 1;

/// Maximum size of a file in bytes. Weights are not included, so even a large graph takes a few
/// megabytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of nodes.
const MAX_NODES: usize = 1 << 20;
/// Maximum rank of a tensor.
const MAX_RANK: usize = 8;
/// Maximum length of a name or label in bytes.
const MAX_NAME: usize = 1024;
/// Maximum number of terms in the element count of a shape after expansion.
const MAX_TERMS: usize = 256;
/// Maximum length of the text form of a size in bytes.
const MAX_SIZE_TEXT: usize = 512;

#[derive(Serialize)]
struct FileOut<'a> {
    magic: &'a str,
    version: u32,
    graph: &'a Graph,
}

#[derive(Deserialize)]
struct Head {
    magic: String,
    version: u32,
}

#[derive(Deserialize)]
struct FileIn {
    graph: Graph,
}

/// Serialises a graph.
///
/// # Errors
/// Invalid if the graph fails [`verify`] or exceeds a limit, so that [`load`] would reject it.
pub fn save(graph: &Graph) -> Result<Vec<u8>> {
    verify(graph)?;
    bounded(graph)?;
    let file = FileOut { magic: MAGIC, version: VERSION, graph };
    serde_json::to_vec(&file).map_err(|e| {
        Error::invalid(format!("graph {} cannot be written", graph.name)).with_source(e)
    })
}

/// Parses the bytes of a graph file.
///
/// # Errors
/// Bad file, with the reason, if the bytes are not a graph file of this version, if they exceed a
/// limit, or if the graph fails [`verify`].
pub fn load(bytes: &[u8]) -> Result<Graph> {
    if bytes.len() > MAX_BYTES {
        return Err(Error::bad_file(format!(
            "graph file of {} bytes is larger than {MAX_BYTES}",
            bytes.len()
        )));
    }
    let head: Head = parse(bytes)?;
    if head.magic != MAGIC {
        return Err(Error::bad_file(format!("graph file: the magic word is not {MAGIC:?}")));
    }
    if head.version != VERSION {
        return Err(Error::bad_file(format!(
            "graph file has version {}, this build reads {VERSION}",
            head.version
        )));
    }
    let graph = parse::<FileIn>(bytes)?.graph;
    let bad = |e: Error| Error::bad_file(format!("graph file: {e}"));
    bounded(&graph).map_err(bad)?;
    verify(&graph).map_err(bad)?;
    Ok(graph)
}

fn parse<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|e| Error::bad_file(format!("graph file: {e}")))
}

/// Checks that node count, names and sizes are within the limits.
fn bounded(graph: &Graph) -> Result<()> {
    if graph.nodes().len() > MAX_NODES {
        return Err(Error::invalid(format!("{} nodes, at most {MAX_NODES}", graph.nodes().len())));
    }
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let context = |e: Error| e.context(format!("{id} {}", node.op.name()));
        let name = node.op.bound_names().map(str::len).max().unwrap_or(0);
        if name.max(node.label.len()) > MAX_NAME {
            return Err(context(Error::invalid(format!("a name longer than {MAX_NAME} bytes"))));
        }
        bounded_shape(&node.shape).map_err(context)?;
        match &node.op {
            Op::Reshape(shape) | Op::Expand(shape) => bounded_shape(shape).map_err(context)?,
            Op::Update { at } | Op::Attention { past: at, .. } => {
                bounded_dims(std::slice::from_ref(at)).map_err(context)?;
            }
            Op::Slice { start, len, .. } => {
                bounded_dims(&[start.clone(), len.clone()]).map_err(context)?;
            }
            Op::Custom(custom) => {
                let shapes = custom.inputs.iter().chain(&custom.outputs);
                for (shape, _) in shapes {
                    bounded_shape(shape).map_err(context)?;
                }
                for dim in custom.dims() {
                    bounded_dims(std::slice::from_ref(dim)).map_err(context)?;
                }
            }
            _ => {}
        }
    }
    Ok(())
}

fn bounded_shape(shape: &Shape) -> Result<()> {
    if shape.rank() > MAX_RANK {
        return Err(Error::invalid(format!("rank {}, at most {MAX_RANK}", shape.rank())));
    }
    bounded_dims(shape.dims())
}

/// Checks that every size is in normal form and that the product of all sizes, when expanded, has
/// few terms. Sizes are polynomials, so a file could otherwise make that expansion arbitrarily
/// large.
///
/// # Errors
/// Invalid, with the reason.
pub fn bounded_dims(dims: &[Dim]) -> Result<()> {
    let mut terms = 1usize;
    for dim in dims {
        if !dim.is_normal() {
            return Err(Error::invalid("a size is not in normal form"));
        }
        let text = dim.to_string();
        if text.len() > MAX_SIZE_TEXT {
            return Err(Error::invalid(format!("a size of {} characters", text.len())));
        }
        // Each term but the first is preceded by a sign.
        let signs = text.bytes().filter(|b| matches!(b, b'+' | b'-')).count();
        terms = terms.saturating_mul(signs + 1);
    }
    if terms > MAX_TERMS {
        return Err(Error::invalid(format!("sizes of {terms} terms, at most {MAX_TERMS}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Format, Symbol};

    fn small() -> Graph {
        let seq = Dim::symbol(Symbol::new("seq"));
        let half = (seq.clone() + Dim::new(1)).floor_div(&Dim::new(2));
        let mut g = Graph::new("small");
        let x = g.input("x", Shape::new([seq, Dim::new(64)]), DType::F32);
        let w = g.weight("w", Shape::new([3, 64]), Format::Q8_0);
        let y = g.add(Op::linear(), &[x, w]).unwrap();
        let y = g.add(Op::Slice { axis: 0, start: Dim::new(0), len: half, step: 2 }, &[y]).unwrap();
        let c = g.constant_f32(Shape::new([3]), &[1.0, -0.0, f32::NEG_INFINITY]);
        let y = g.add(Op::Binary(crate::ir::BinaryOp::Add), &[y, c]).unwrap();
        g.output("y", y).unwrap();
        g
    }

    fn error(bytes: &[u8]) -> String {
        let error = load(bytes).unwrap_err();
        assert!(error.is_bad_file(), "{error}");
        error.to_string()
    }

    #[test]
    fn what_is_saved_is_loaded() {
        let graph = small();
        let bytes = save(&graph).unwrap();
        assert_eq!(load(&bytes).unwrap(), graph);
    }

    #[test]
    fn bad_files_say_what_is_wrong() {
        let text = String::from_utf8(save(&small()).unwrap()).unwrap();
        assert!(error(b"{}").contains("magic"));
        assert!(error(b"not json").contains("line 1"));
        assert!(error(text.replacen("warploom-graph", "other", 1).as_bytes()).contains("magic"));
        let newer = text.replacen("\"version\":1", "\"version\":2", 1);
        assert!(error(newer.as_bytes()).contains("version 2, this build reads 1"));
        let lie = text.replacen("\"constant\":64", "\"constant\":63", 1);
        assert!(error(lie.as_bytes()).contains("linear"));
        let gone = text.replacen("[\"y\",5]", "[\"y\",99]", 1);
        assert!(error(gone.as_bytes()).contains("does not exist"));
    }

    #[test]
    fn truncated_files_are_errors() {
        let bytes = save(&small()).unwrap();
        for len in 0..bytes.len() {
            error(&bytes[..len]);
        }
    }

    #[test]
    fn hostile_sizes_are_refused() {
        let mut g = Graph::new("g");
        g.input("x", Shape::new([1i64; 9]), DType::F32);
        assert!(save(&g).unwrap_err().to_string().contains("rank 9, at most 8"));
        let long = (0..8).fold(Dim::new(1), |sum, i| {
            sum + Dim::symbol(Symbol::parse(&format!("s{i}")).unwrap())
        });
        let mut g = Graph::new("g");
        g.input("x", Shape::new(vec![long; 8]), DType::F32);
        assert!(save(&g).unwrap_err().to_string().contains("terms"));
        let text = String::from_utf8(save(&small()).unwrap()).unwrap();
        // A zero coefficient, which arithmetic never produces.
        let zero = text.replacen(
            "\\\"Symbol\\\":\\\"seq\\\"}]\":1",
            "\\\"Symbol\\\":\\\"seq\\\"}]\":0",
            1,
        );
        assert_ne!(zero, text);
        assert!(error(zero.as_bytes()).contains("normal form"));
    }
}

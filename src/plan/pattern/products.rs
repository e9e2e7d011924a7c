//! Horizontal fusion of products that share an operand (query, key and value; gate and up): one
//! GEMM instead of several.
//!
//! The time of a product is mostly weight traffic, and one tall matrix keeps a device busier than
//! three short ones. The individual results are slices of the common result along the last axis,
//! which strides can express.

use std::collections::{BTreeMap, HashMap};

use crate::base::{ComputeMode, Dim, Format, Shape};
use crate::error::Result;
use crate::ir::{Graph, MergedPart, NodeId, Op, rewrite};
use crate::provider::GRANULE;

/// A product that can be merged: its weight's name, rows and bytes.
struct Product {
    node: NodeId,
    part: MergedPart,
    bytes: u64,
}

/// Merges products of the same operand by weights of the same format, as long as the weights fit in
/// one buffer of `max_bytes`. A product is left alone if its weight has another reader, or if the
/// product or the weight is an output.
pub(super) fn merged(graph: &Graph, max_bytes: u64) -> Result<Graph> {
    let groups = groups(graph, max_bytes);
    let member: HashMap<NodeId, (usize, usize)> = groups
        .iter()
        .enumerate()
        .flat_map(|(g, group)| group.iter().enumerate().map(move |(i, p)| (p.node, (g, i))))
        .collect();
    let mut products: Vec<Option<NodeId>> = vec![None; groups.len()];
    rewrite(graph, |new, id, node, inputs| {
        let Some((group, place)) = member.get(&id) else { return Ok(None) };
        let parts = &groups[*group];
        let product = match products[*group] {
            Some(product) => product,
            None => {
                let product = product(graph, new, inputs[0], parts)?;
                *products[*group].insert(product)
            }
        };
        let rows = |parts: &[Product]| Dim::from(parts.iter().map(|p| p.part.rows).sum::<u64>());
        let slice = Op::Slice {
            axis: node.shape.rank() - 1,
            start: rows(&parts[..*place]),
            len: rows(&parts[*place..=*place]),
            step: 1,
        };
        new.add(slice, &[product]).map(Some)
    })
}

/// Adds the product with all weights of a group.
fn product(graph: &Graph, new: &mut Graph, x: NodeId, group: &[Product]) -> Result<NodeId> {
    let weight = graph.node(graph.node(group[0].node).inputs[1]);
    let rows: u64 = group.iter().map(|product| product.part.rows).sum();
    let parts = group.iter().map(|product| product.part.clone()).collect();
    let op = Op::Merged { parts, format: weight.op.stored().unwrap_or(Format::F32) };
    let mut merged = weight.clone();
    merged.shape = Shape::new([Dim::from(rows), weight.shape[1].clone()]);
    (merged.op, merged.label) = (op, String::new());
    let merged = new.push(merged);
    let product = new.add(graph.node(group[0].node).op.clone(), &[x, merged])?;
    Ok(new.label(product, label(graph, group)))
}

/// Returns the label of a merged product, such as `blk.0.attn_q+attn_k+attn_v`: the common prefix
/// of the labels appears once.
fn label(graph: &Graph, group: &[Product]) -> String {
    let labels: Vec<&str> =
        group.iter().map(|product| graph.node(product.node).label.as_str()).collect();
    let prefix = labels[0].rfind('.').map_or(0, |dot| dot + 1);
    let same = labels.iter().all(|label| label.get(..prefix) == labels[0].get(..prefix));
    let rest = if same { prefix } else { 0 };
    let tails: Vec<&str> = labels.iter().map(|label| &label[rest..]).collect();
    match labels.iter().any(|label| label.is_empty()) {
        true => String::new(),
        false => format!("{}{}", &labels[0][..rest], tails.join("+")),
    }
}

/// Returns the products to merge, two or more per group, in graph order.
fn groups(graph: &Graph, max_bytes: u64) -> Vec<Vec<Product>> {
    let users = graph.users();
    let wanted = |id: NodeId| graph.outputs().iter().any(|(_, output)| *output == id);
    let mut groups: BTreeMap<(NodeId, Format, ComputeMode), Vec<Product>> = BTreeMap::new();
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let (Op::Linear { mode }, [x, w]) = (&node.op, &node.inputs[..]) else { continue };
        let weight = graph.node(*w);
        let Op::Weight { name, format } = &weight.op else { continue };
        let [Some(rows), Some(k)] =
            [0, 1].map(|axis| weight.shape[axis].as_const().and_then(|d| u64::try_from(d).ok()))
        else {
            continue;
        };
        let Some(bytes) = rows.checked_mul(k).and_then(|n| format.bytes(n)) else { continue };
        // The next weight begins where this one ends, at a multiple of the granule.
        let whole = bytes > 0 && bytes.is_multiple_of(GRANULE);
        if !whole || users[w.index()].len() != 1 || wanted(id) || wanted(*w) {
            continue;
        }
        let part = MergedPart { name: name.clone(), rows };
        groups.entry((*x, *format, *mode)).or_default().push(Product { node: id, part, bytes });
    }
    groups.into_values().flat_map(|group| fitting(group, max_bytes)).collect()
}

/// Splits a group so that the weights of each part fit one buffer; single products are dropped.
fn fitting(group: Vec<Product>, max_bytes: u64) -> Vec<Vec<Product>> {
    let mut cut: Vec<(u64, Vec<Product>)> = Vec::new();
    for product in group {
        match cut.last_mut() {
            Some((bytes, group)) if bytes.saturating_add(product.bytes) <= max_bytes => {
                *bytes += product.bytes;
                group.push(product);
            }
            _ => cut.push((product.bytes, vec![product])),
        }
    }
    cut.into_iter().map(|(_, group)| group).filter(|group| group.len() > 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::DType;
    use crate::ir::{BinaryOp, live, verify};

    /// Builds a graph with products of `x` `[5, 64]` by weights with these rows and formats, each
    /// added to itself.
    fn graph(weights: &[(&str, u64, Format)]) -> Graph {
        let mut g = Graph::new("g");
        let x = g.input("x", Shape::new([5, 64]), DType::F32);
        for (name, rows, format) in weights {
            let w = g.weight(name, Shape::new([*rows, 64]), *format);
            let y = g.add(Op::linear(), &[x, w]).unwrap();
            g.label(y, format!("blk.{name}"));
            let y = g.add(Op::Binary(BinaryOp::Add), &[y, y]).unwrap();
            g.output(*name, y).unwrap();
        }
        verify(&g).unwrap();
        g
    }

    fn after(graph: &Graph, max_bytes: u64) -> String {
        let new = live(&merged(graph, max_bytes).unwrap());
        verify(&new).unwrap();
        new.to_string()
    }

    #[test]
    fn products_of_one_operand_are_one() {
        let q8 = Format::Q8_0;
        let g = graph(&[("q", 16, q8), ("k", 8, q8), ("v", 8, Format::Q4_0), ("u", 4, q8)]);
        let want = "\
graph g
%0: f32[5, 64] = input \"x\"
%1: f32[28, 64] = merged \"q\" 16 + \"k\" 8 + \"u\" 4 q8_0
%2: f32[5, 28] = linear(%0, %1)  # blk.q+k+u
%3: f32[5, 16] = slice(%2) axis=1 start=0 len=16 step=1  # blk.q
%4: f32[5, 16] = add(%3, %3)
%5: f32[5, 8] = slice(%2) axis=1 start=16 len=8 step=1  # blk.k
%6: f32[5, 8] = add(%5, %5)
%7: f32[8, 64] = weight \"v\" q4_0
%8: f32[5, 8] = linear(%0, %7)  # blk.v
%9: f32[5, 8] = add(%8, %8)
%10: f32[5, 4] = slice(%2) axis=1 start=24 len=4 step=1  # blk.u
%11: f32[5, 4] = add(%10, %10)
output \"q\" = %4
output \"k\" = %6
output \"v\" = %9
output \"u\" = %11
";
        assert_eq!(after(&g, u64::MAX), want);
    }

    #[test]
    fn a_weight_that_others_read_stays() {
        let f32 = Format::F32;
        let mut g = graph(&[("q", 16, f32), ("k", 8, f32)]);
        let same = after(&g, u64::MAX);
        assert!(same.contains("merged"), "{same}");
        g.output("weight", NodeId(4)).unwrap();
        assert_eq!(after(&g, u64::MAX), g.to_string());
    }

    #[test]
    fn a_product_that_is_wanted_stays() {
        let mut g = graph(&[("q", 16, Format::F32), ("k", 8, Format::F32)]);
        g.output("product", NodeId(2)).unwrap();
        assert_eq!(after(&g, u64::MAX), g.to_string());
    }

    #[test]
    fn weights_that_do_not_fit_one_buffer_or_begin_crooked_stay() {
        let q4 = Format::Q4_0;
        let g = graph(&[("q", 16, Format::F32), ("k", 8, Format::F32)]);
        assert_eq!(after(&g, 24 * 64 * 4 - 1), g.to_string());
        assert!(after(&g, 24 * 64 * 4).contains("merged"));
        // A row of 36 bytes, three of them no multiple of 16.
        let g = graph(&[("q", 3, q4), ("k", 8, q4)]);
        assert_eq!(after(&g, u64::MAX), g.to_string());
    }
}

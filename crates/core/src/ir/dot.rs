//! A graph as Graphviz text: `warploom explain MODEL --graph dot | dot -Tsvg`.

use std::fmt::Write;

use super::graph::Graph;
use super::op::OpClass;
use super::print::parameters;

/// Prints the graph in Graphviz's DOT language: one box per node, coloured by [`OpClass`].
pub fn dot(graph: &Graph) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "digraph {} {{", quoted(&graph.name));
    let _ = writeln!(text, "  node [shape=box, style=filled, fontname=monospace];");
    for (id, node) in graph.ids().zip(graph.nodes()) {
        let colour = match node.op.class() {
            OpClass::Leaf => "white",
            OpClass::Elementwise => "palegreen",
            OpClass::Reduction => "khaki",
            OpClass::Anchor => "lightcoral",
            OpClass::Alias => "lightgrey",
            OpClass::Special => "lightblue",
        };
        let words = parameters(&node.op, node.dtype);
        let what = format!("{id} {}{words}\n{}{}", node.op.name(), node.dtype, node.shape);
        let label = if node.label.is_empty() { what } else { format!("{what}\n{}", node.label) };
        let _ = writeln!(text, "  n{} [label={}, fillcolor={colour}];", id.0, quoted(&label));
        for input in &node.inputs {
            let _ = writeln!(text, "  n{} -> n{};", input.0, id.0);
        }
    }
    for (i, (name, id)) in graph.outputs().iter().enumerate() {
        let _ =
            writeln!(text, "  out{i} [label={}, shape=ellipse, fillcolor=white];", quoted(name));
        let _ = writeln!(text, "  n{} -> out{i};", id.0);
    }
    text.push_str("}\n");
    text
}

fn quoted(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Shape};
    use crate::ir::{Op, UnaryOp};

    #[test]
    fn quotes_names_and_draws_edges() {
        let mut g = Graph::new("a \"b\"");
        let x = g.input("x", Shape::new([2]), DType::F32);
        let y = g.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
        g.output("y", y).unwrap();
        let text = dot(&g);
        assert!(text.starts_with("digraph \"a \\\"b\\\"\" {"), "{text}");
        assert!(text.contains("n0 -> n1;") && text.contains("n1 -> out0;"), "{text}");
        assert!(text.contains("label=\"%0 input \\\"x\\\"\\nf32[2]\\nx\""), "{text}");
    }
}

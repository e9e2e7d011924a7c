//! The stable text form of a graph, one line per node, for golden files and dumps.
//!
//! ```text
//! graph tiny
//! %0: f32[seq, 576] = input "x"
//! %1: f32[576] = weight "norm" f32
//! %2: f32[seq, 576] = rms_norm(%0, %1) eps=1e-5  # blk.0.attn_norm
//! output "y" = %2
//! ```

use std::fmt;

use super::graph::{Graph, Node};
use super::op::Op;
use crate::base::{ComputeMode, DType};

/// Maximum number of words of a constant to print; any others are only counted.
const SHOWN_WORDS: usize = 8;

impl fmt::Display for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "graph {}", self.name)?;
        for (id, node) in self.ids().zip(self.nodes()) {
            writeln!(f, "{id}: {node}")?;
        }
        for (name, id) in self.outputs() {
            writeln!(f, "output {name:?} = {id}")?;
        }
        Ok(())
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{} = {}", self.dtype, self.shape, self.op.name())?;
        if !self.inputs.is_empty() {
            for (i, input) in self.inputs.iter().enumerate() {
                write!(f, "{}{input}", if i == 0 { "(" } else { ", " })?;
            }
            f.write_str(")")?;
        }
        f.write_str(&parameters(&self.op, self.dtype))?;
        let own_name = match &self.op {
            Op::Input { name } | Op::Weight { name, .. } | Op::State { name } => name,
            _ => "",
        };
        if !self.label.is_empty() && self.label != own_name {
            write!(f, "  # {}", self.label)?;
        }
        Ok(())
    }
}

/// Formats the parameters of an operation, with a leading space if there are any.
pub(super) fn parameters(op: &Op, dtype: DType) -> String {
    match op {
        Op::Input { name } | Op::State { name } => format!(" {name:?}"),
        Op::Weight { name, format } => format!(" {name:?} {format}"),
        Op::Merged { parts, format } => {
            let parts: Vec<String> =
                parts.iter().map(|part| format!("{:?} {}", part.name, part.rows)).collect();
            format!(" {} {format}", parts.join(" + "))
        }
        Op::Constant { words } => constant(words, dtype),
        Op::Reduce { op, axes, keep } => {
            format!(" {} axes={axes:?}{}", op.name(), if *keep { " keep" } else { "" })
        }
        Op::Conv2d(c) => format!(
            " stride={:?} before={:?} after={:?} dilation={:?} groups={}",
            c.stride, c.pad_before, c.pad_after, c.dilation, c.groups
        ),
        Op::Pool2d(p) => format!(
            " {:?} kernel={:?} stride={:?} before={:?} after={:?} dilation={:?}{}",
            p.kind,
            p.kernel,
            p.stride,
            p.pad_before,
            p.pad_after,
            p.dilation,
            if p.count_pad { " count_pad" } else { "" }
        ),
        Op::RmsNorm { eps } | Op::LayerNorm { eps } => format!(" eps={eps:?}"),
        Op::Rope { pairs, rot_dim } => format!(" {pairs:?} rot_dim={rot_dim}"),
        Op::Attention { scale, causal, window, past, mode, sinks, soft_cap } => format!(
            " scale={scale:?}{}{} past={past}{}{}{}",
            if *causal { " causal" } else { "" },
            window.map_or(String::new(), |w| format!(" window={w}")),
            rounds(*mode),
            if *sinks { " sinks" } else { "" },
            soft_cap.map_or(String::new(), |cap| format!(" soft_cap={cap:?}"))
        ),
        Op::Gather { axis } | Op::Concat { axis } => format!(" axis={axis}"),
        Op::Update { at } => format!(" at={at}"),
        Op::Pad { amounts, word } => format!(" amounts={amounts:?} value={}", number(*word, dtype)),
        Op::Transpose(perm) => format!(" perm={perm:?}"),
        Op::Slice { axis, start, len, step } => {
            format!(" axis={axis} start={start} len={len} step={step}")
        }
        Op::Custom(custom) => match custom.outputs.len() {
            1 => format!(" {:?}", custom.name),
            _ => format!(" {:?} output={}", custom.name, custom.output),
        },
        // The result's type and shape contain these parameters.
        Op::Cast(_) | Op::Reshape(_) | Op::Expand(_) => String::new(),
        Op::Unary(_) | Op::Binary(_) | Op::Select => String::new(),
        Op::Linear { mode } | Op::ExpertLinear { mode } => rounds(*mode),
        Op::TopK { k } => format!(" k={k}"),
        Op::ArgSort { descending } => if *descending { " descending" } else { "" }.into(),
        Op::ArgMax | Op::Greedy | Op::Sample | Op::Softmax => String::new(),
        Op::MatMul | Op::Scatter | Op::IndexAdd | Op::TakeAlong | Op::DeltaRule => String::new(),
    }
}

/// Formats the compute mode, with a leading space; empty for `F32`.
fn rounds(mode: ComputeMode) -> String {
    match mode {
        ComputeMode::F32 => String::new(),
        _ => format!(" mode={mode}"),
    }
}

fn constant(words: &[u32], dtype: DType) -> String {
    let shown: Vec<String> =
        words.iter().take(SHOWN_WORDS).map(|word| number(*word, dtype)).collect();
    let rest = words.len().saturating_sub(SHOWN_WORDS);
    let more = if rest > 0 { format!(" and {rest} more") } else { String::new() };
    format!(" {}{more}", shown.join(" "))
}

fn number(word: u32, dtype: DType) -> String {
    match dtype {
        DType::F32 => format!("{:?}", f32::from_bits(word)),
        DType::I32 => word.cast_signed().to_string(),
        DType::Bool => (word != 0).to_string(),
        DType::U32 | DType::F16 | DType::BF16 => word.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use crate::base::{DType, Dim, Format, Shape, Symbol};
    use crate::ir::{BinaryOp, Graph, Op, ReduceOp};

    #[test]
    fn one_line_a_node() {
        let mut g = Graph::new("tiny");
        let seq = Dim::symbol(Symbol::new("seq"));
        let x = g.input("x", Shape::new([seq.clone(), Dim::new(576)]), DType::F32);
        let w = g.weight("norm", Shape::new([576]), Format::F32);
        let y = g.add(Op::RmsNorm { eps: 1e-5 }, &[x, w]).unwrap();
        g.label(y, "blk.0.attn_norm");
        let c = g.constant_i32(Shape::new([1]), &[-3]);
        let f = g.add(Op::Cast(DType::F32), &[c]).unwrap();
        let z = g.add(Op::Binary(BinaryOp::Mul), &[y, f]).unwrap();
        let last = Op::Slice { axis: 0, start: seq - Dim::new(1), len: Dim::new(1), step: 1 };
        let z = g.add(last, &[z]).unwrap();
        let sum = Op::Reduce { op: ReduceOp::Sum, axes: vec![1], keep: true };
        let z = g.add(sum, &[z]).unwrap();
        g.output("z", z).unwrap();
        let want = "\
graph tiny
%0: f32[seq, 576] = input \"x\"
%1: f32[576] = weight \"norm\" f32
%2: f32[seq, 576] = rms_norm(%0, %1) eps=1e-5  # blk.0.attn_norm
%3: i32[1] = constant -3
%4: f32[1] = cast(%3)
%5: f32[seq, 576] = mul(%2, %4)
%6: f32[1, 576] = slice(%5) axis=0 start=seq-1 len=1 step=1
%7: f32[1, 1] = reduce(%6) sum axes=[1] keep
output \"z\" = %7
";
        assert_eq!(g.to_string(), want);
    }

    #[test]
    fn long_constants_are_cut() {
        let mut g = Graph::new("c");
        g.constant_f32(Shape::new([10]), &[0.5; 10]);
        assert!(g.to_string().ends_with("0.5 0.5 and 2 more\n"), "{g}");
    }
}

//! Reference evaluation of generated kernels' bodies, for tests of their printers and runners.
//!
//! A body becomes a graph with one operation per value, over the entire index space; `reference`
//! evaluates the graph in `f64`. Operands are read and written as the parameters specify. The
//! schedule is ignored.

use std::collections::BTreeMap;

use half::{bf16, f16};

use crate::{Addressing, FusedExpr, Operand, Value};
use warploom_core::base::{DType, Dim, Shape, SymbolValues};
use warploom_core::error::{Error, Result};
use warploom_core::ir::{Graph, NodeId, Op};
use warploom_core::reference::{Data, Precision, Tensor, eval_with};

/// The elements that a generated kernel writes to one of its outputs.
#[derive(Clone, Debug, PartialEq)]
pub struct Written {
    /// Index in the buffer of each element that is written.
    pub places: Vec<usize>,
    /// The value at each index; floats in `f64`.
    pub values: Tensor,
}

/// Evaluates a body, given the words of its parameters (laid out as in [`crate::fused`]) and the
/// 32-bit words of its input buffers. Returns the elements of each output in order.
///
/// # Errors
/// Invalid if the parameters do not fit the body, an address is outside its buffer or a rule of an
/// operation is violated; unsupported if the body has anchors.
pub fn evaluate(expr: &FusedExpr, params: &[u32], reads: &[Vec<u32>]) -> Result<Vec<Written>> {
    let mut words = params.iter().map(|word| *word as usize);
    let mut next = || words.next().ok_or_else(|| Error::invalid("a parameter is missing"));
    let n = next()?;
    let sizes = (0..expr.rank).map(|_| next()).collect::<Result<Vec<_>>>()?;
    if sizes.iter().product::<usize>() != n {
        return Err(Error::invalid(format!("{n} elements of {sizes:?}")));
    }
    let mut places = Vec::new();
    for operand in expr.operands() {
        let words = match operand.addressing {
            Addressing::Flat | Addressing::Single => 1,
            Addressing::Strided | Addressing::Row => 1 + sizes.len(),
        };
        let words = (0..words).map(|_| next()).collect::<Result<Vec<_>>>()?;
        places.push(Place { addressing: operand.addressing, words });
    }
    let mut body = Body { expr, sizes, graph: Graph::new("body"), bindings: BTreeMap::new() };
    let mut nodes: Vec<NodeId> = Vec::new();
    for value in &expr.values {
        let node = body.value(*value, &nodes, &places, reads)?;
        nodes.push(node);
    }
    for (i, output) in expr.outputs.iter().enumerate() {
        let node = node_of(&nodes, output.value)?;
        let node = body.expand(node, body.written(i))?;
        body.graph.output(format!("{i}"), node)?;
    }
    let values = eval_with(&body.graph, &SymbolValues::new(), &body.bindings, Precision::F64)?;
    let written = body.graph.outputs().iter().enumerate().map(|(i, (_, node))| Written {
        places: places[expr.inputs.len() + i].all(&body.written(i)),
        values: values.value(*node).clone(),
    });
    Ok(written.collect())
}

fn node_of(nodes: &[NodeId], value: u32) -> Result<NodeId> {
    nodes
        .get(value as usize)
        .copied()
        .ok_or_else(|| Error::invalid(format!("value {value} of {}", nodes.len())))
}

/// The addressing of an operand, with its parameter words: the offset, then any strides.
struct Place {
    addressing: Addressing,
    words: Vec<usize>,
}

impl Place {
    /// Returns the operand's address at each index of an index space of these sizes, in row-major
    /// order.
    fn all(&self, sizes: &[usize]) -> Vec<usize> {
        let count = sizes.iter().product();
        let address = |i: usize| match self.addressing {
            Addressing::Flat => self.words[0] + i,
            Addressing::Single => self.words[0],
            Addressing::Strided | Addressing::Row => {
                let (mut rest, mut sum) = (i, self.words[0]);
                for (size, stride) in sizes.iter().zip(&self.words[1..]).rev() {
                    // Negative strides wrap, as in the 32-bit words of a device.
                    let step = (rest % size).wrapping_mul(*stride);
                    sum = sum.wrapping_add(step) & u32::MAX as usize;
                    rest /= size;
                }
                sum
            }
        };
        (0..count).map(address).collect()
    }
}

/// The graph under construction.
struct Body<'a> {
    expr: &'a FusedExpr,
    sizes: Vec<usize>,
    graph: Graph,
    bindings: BTreeMap<String, Tensor>,
}

impl Body<'_> {
    fn value(
        &mut self,
        value: Value,
        nodes: &[NodeId],
        places: &[Place],
        reads: &[Vec<u32>],
    ) -> Result<NodeId> {
        let of = |value: u32| node_of(nodes, value);
        let op = match value {
            Value::Input(i) => {
                let (operand, place) = self
                    .expr
                    .inputs
                    .get(i as usize)
                    .zip(places.get(i as usize))
                    .ok_or_else(|| Error::invalid(format!("input {i}")))?;
                return self.input(i, operand, place, reads);
            }
            Value::Constant(dtype, bits) => {
                return self.bind(Tensor::constant(vec![1; self.sizes.len()], dtype, &[bits])?);
            }
            Value::Index => {
                let count = self.sizes.iter().product::<usize>() as u32;
                return self.bind(Tensor::new(wide(&self.sizes), Data::U32((0..count).collect()))?);
            }
            Value::Unary(op, _) => Op::Unary(op),
            Value::Binary(op, ..) => Op::Binary(op),
            Value::Select(..) => Op::Select,
            Value::Cast(dtype, _) => Op::Cast(dtype),
            Value::Reduce(op, a) => {
                let last = self.sizes.len().checked_sub(1);
                let last = last.ok_or_else(|| Error::invalid("a reduction of rank 0"))?;
                let all = self.expand(of(a)?, self.sizes.clone())?;
                return self.graph.add(Op::Reduce { op, axes: vec![last], keep: true }, &[all]);
            }
            Value::Anchor(_) => return Err(Error::unsupported("an anchor has no value here")),
        };
        let operands = value.operands().map(of).collect::<Result<Vec<_>>>()?;
        self.graph.add(op, &operands)
    }

    /// Binds the elements of an input over the index space: a single one for `Single`, one per row
    /// for `Row`.
    fn input(
        &mut self,
        i: u32,
        operand: &Operand,
        place: &Place,
        reads: &[Vec<u32>],
    ) -> Result<NodeId> {
        let mut sizes = match place.addressing {
            Addressing::Single => vec![1; self.sizes.len()],
            _ => self.sizes.clone(),
        };
        if let (Addressing::Row, Some(last)) = (place.addressing, sizes.last_mut()) {
            *last = 1;
        }
        let buffer = reads.get(operand.binding as usize).map_or(&[][..], Vec::as_slice);
        let each = 4 / operand.dtype.bytes() as usize;
        let read = |at: &usize| {
            let word = buffer.get(at / each).ok_or_else(|| {
                Error::invalid(format!("input {i} reads element {at} of {}", each * buffer.len()))
            })?;
            Ok(word >> (at % each * 16))
        };
        let words = place.all(&sizes).iter().map(read).collect::<Result<Vec<_>>>()?;
        let data = match operand.dtype {
            DType::F32 => Data::F32(words.into_iter().map(f32::from_bits).collect()),
            DType::I32 => Data::I32(words.into_iter().map(u32::cast_signed).collect()),
            DType::U32 => Data::U32(words),
            DType::Bool => Data::Bool(words.into_iter().map(|word| word != 0).collect()),
            DType::F16 => Data::F16(words.into_iter().map(|w| f16::from_bits(w as u16)).collect()),
            DType::BF16 => {
                Data::BF16(words.into_iter().map(|w| bf16::from_bits(w as u16)).collect())
            }
        };
        self.bind(Tensor::new(wide(&sizes), data)?)
    }

    fn bind(&mut self, tensor: Tensor) -> Result<NodeId> {
        let name = format!("{}", self.bindings.len());
        let shape = shape(tensor.shape.iter().map(|size| *size as usize));
        let node = self.graph.input(&name, shape, tensor.dtype());
        self.bindings.insert(name, tensor);
        Ok(node)
    }

    fn expand(&mut self, node: NodeId, to: Vec<usize>) -> Result<NodeId> {
        let to = shape(to);
        match self.graph.node(node).shape == to {
            true => Ok(node),
            false => self.graph.add(Op::Expand(to), &[node]),
        }
    }

    /// Returns the sizes of output `i`: a row value has one element per row.
    fn written(&self, i: usize) -> Vec<usize> {
        let mut sizes = self.sizes.clone();
        if let Some(last) = sizes.last_mut().filter(|_| self.expr.writes_rows(i)) {
            *last = 1;
        }
        sizes
    }
}

fn wide(sizes: &[usize]) -> Vec<u64> {
    sizes.iter().map(|size| *size as u64).collect()
}

fn shape(sizes: impl IntoIterator<Item = usize>) -> Shape {
    Shape::new(sizes.into_iter().map(|size| Dim::from(size as u64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Output, Schedule};
    use warploom_core::ir::ReduceOp;
    use warploom_core::ir::scalar::BinaryOp;

    fn operand(addressing: Addressing) -> Operand {
        Operand { dtype: DType::F32, addressing, binding: 0 }
    }

    #[test]
    fn rows_are_reduced_and_written_by_element_and_by_row() {
        // x [2, 3] from element 1 on, transposed; y = x / sum of x, and the sums.
        let expr = FusedExpr {
            rank: 2,
            inputs: vec![operand(Addressing::Strided)],
            values: vec![
                Value::Input(0),
                Value::Reduce(ReduceOp::Sum, 0),
                Value::Binary(BinaryOp::Div, 0, 1),
            ],
            outputs: vec![
                Output { operand: operand(Addressing::Flat), value: 2 },
                Output { operand: operand(Addressing::Strided), value: 1 },
                Output { operand: operand(Addressing::Flat), value: 1 },
            ],
            schedule: Schedule::Rows { threads: 4, held: 0, width: 1, subgroup: false },
        };
        let x: Vec<u32> = [9.0f32, 1.0, 4.0, 2.0, 5.0, 1.0, 1.0].map(f32::to_bits).to_vec();
        let params = [6, 2, 3, 1, 1, 2, 10, 20, 5, 7, 30];
        let written = evaluate(&expr, &params, std::slice::from_ref(&x)).unwrap();
        assert_eq!(written[0].places, [10, 11, 12, 13, 14, 15]);
        assert_eq!(written[0].values.floats(), [0.25, 0.5, 0.25, 0.4, 0.5, 0.1]);
        assert_eq!(
            (&written[1].places[..], written[1].values.floats()),
            (&[20, 25][..], vec![4.0, 10.0])
        );
        assert_eq!(written[2].values.floats(), [4.0, 4.0, 4.0, 10.0, 10.0, 10.0]);
        let mut far = params;
        far[3] = 2;
        let error = evaluate(&expr, &far, &[x]).unwrap_err().to_string();
        assert!(error.contains("element 7 of 7"), "{error}");
        assert!(evaluate(&expr, &[7, 2, 3], &[]).unwrap_err().is_invalid());
    }
}

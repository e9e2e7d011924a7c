//! Maximum, minimum, ReLU and max pooling of NaN, which must not be lost. A result is compared after
//! NaN has been replaced by a number, since no tolerance accepts NaN.

use crate::build::{Build, Case};
use warploom_core::base::Shape;
use warploom_core::ir::{BinaryOp, NodeId, Op, Pool2d, PoolKind, ReduceOp, UnaryOp};
use warploom_core::reference::Data;

const NAN_IS: f32 = -77.0;

pub(super) fn add(table: &mut Vec<Case>) {
    for op in [ReduceOp::Max, ReduceOp::Min] {
        // (sizes, axis): a row by a workgroup, short rows, columns.
        for (dims, axis) in [([6, 5000], 1), ([6, 33], 1), ([70, 6], 0)] {
            let mut b = Build::new(format!("nan/{}/{}x{}", op.name(), dims[0], dims[1]));
            let x = rows(&mut b, dims, axis);
            let y = b.op(Op::Reduce { op, axes: vec![axis], keep: false }, &[x]);
            let y = marked(&mut b, y);
            table.push(b.done(y));
        }
    }
    for op in [BinaryOp::Max, BinaryOp::Min] {
        let mut b = Build::new(format!("nan/{}", op.name()));
        let nan = f32::NAN;
        let left = floats(&mut b, "a", &[6], vec![1.0, nan, nan, 2.0, f32::INFINITY, nan]);
        let right = floats(&mut b, "b", &[6], vec![nan, 1.0, nan, 3.0, nan, f32::NEG_INFINITY]);
        let y = b.op(Op::Binary(op), &[left, right]);
        let y = marked(&mut b, y);
        table.push(b.done(y));
    }
    let mut b = Build::new("nan/relu");
    let x = floats(&mut b, "x", &[4], vec![f32::NAN, -1.0, -f32::NAN, 2.0]);
    let y = b.op(Op::Unary(UnaryOp::Relu), &[x]);
    let y = marked(&mut b, y);
    table.push(b.done(y));
    let mut b = Build::new("nan/pool");
    let mut values: Vec<f32> = (0..36).map(|i| (i * 7 % 36) as f32).collect();
    (values[0], values[21], values[35]) = (f32::NAN, f32::NAN, f32::NAN);
    let x = floats(&mut b, "x", &[1, 1, 6, 6], values);
    let y = b.op(Op::Pool2d(Pool2d::new(PoolKind::Max, (2, 2))), &[x]);
    let y = marked(&mut b, y);
    table.push(b.done(y));
}

/// Six rows along the other axis: NaN first, last, in the middle, twice, everywhere and nowhere.
fn rows(b: &mut Build, dims: [u64; 2], axis: usize) -> NodeId {
    let (n, at_row) = (dims[axis] as usize, |row: usize, i: usize| match axis {
        1 => row * dims[1] as usize + i,
        _ => i * dims[1] as usize + row,
    });
    let mut values = b.random("x").evenly(6 * n, -2.0, 2.0);
    let places = [vec![0], vec![n - 1], vec![n / 2], vec![1, n - 2], (0..n).collect(), vec![]];
    for (row, places) in places.iter().enumerate() {
        for (count, i) in places.iter().enumerate() {
            values[at_row(row, *i)] = if count % 2 == 0 { f32::NAN } else { -f32::NAN };
        }
    }
    floats(b, "x", &dims, values)
}

fn floats(b: &mut Build, name: &str, dims: &[u64], values: Vec<f32>) -> NodeId {
    b.input(name, Shape::new(dims.iter().copied()), Data::F32(values))
}

fn marked(b: &mut Build, y: NodeId) -> NodeId {
    let is_number = b.op(Op::Binary(BinaryOp::Eq), &[y, y]);
    let mark = b.constant(&[], &[NAN_IS]);
    b.op(Op::Select, &[is_number, y, mark])
}

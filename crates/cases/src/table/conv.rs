//! Convolutions and pooling: stride, asymmetric padding, dilation and groups.

use crate::build::{Build, Case};
use crate::compare::Tolerance;
use warploom_core::base::{Dim, Format};
use warploom_core::ir::{Conv2d, Op, Pool2d, PoolKind};

const PLAIN: Conv2d =
    Conv2d { stride: (1, 1), pad_before: (0, 0), pad_after: (0, 0), dilation: (1, 1), groups: 1 };

const POOL: Pool2d = Pool2d {
    kind: PoolKind::Max,
    kernel: (2, 2),
    stride: (2, 2),
    pad_before: (0, 0),
    pad_after: (0, 0),
    dilation: (1, 1),
    count_pad: false,
};

pub(super) fn add(table: &mut Vec<Case>) {
    convolutions(table);
    pools(table);
}

fn conv(name: &str, x: [u64; 4], weight: [u64; 4], conv: Conv2d) -> Case {
    let k = weight[1] * weight[2] * weight[3];
    let mut b = Build::new(format!("conv2d/{name}")).within(Tolerance::product(k));
    let x = b.f32("x", x);
    let w = b.weight("w", &weight, Format::F32);
    let y = b.op(Op::Conv2d(conv), &[x, w]);
    b.done(y)
}

fn convolutions(table: &mut Vec<Case>) {
    let same = Conv2d { pad_before: (1, 1), pad_after: (1, 1), ..PLAIN };
    let rows = [
        ("one_pixel", [1, 1, 1, 1], [1, 1, 1, 1], PLAIN),
        ("pointwise", [2, 17, 5, 7], [9, 17, 1, 1], PLAIN),
        ("same3x3", [1, 3, 13, 11], [8, 3, 3, 3], same),
        ("batch", [3, 4, 6, 6], [5, 4, 3, 3], same),
        ("stride2", [1, 3, 15, 16], [4, 3, 3, 3], Conv2d { stride: (2, 2), ..same }),
        ("stride_by_axis", [1, 2, 9, 14], [3, 2, 3, 3], Conv2d { stride: (1, 3), ..PLAIN }),
        ("pad_before", [1, 2, 5, 5], [3, 2, 3, 3], Conv2d { pad_before: (2, 1), ..PLAIN }),
        ("pad_after", [1, 2, 5, 5], [3, 2, 3, 3], Conv2d { pad_after: (1, 2), ..PLAIN }),
        ("dilated", [1, 2, 11, 12], [3, 2, 3, 3], Conv2d { dilation: (2, 3), ..same }),
        ("depthwise", [1, 12, 9, 9], [12, 1, 3, 3], Conv2d { groups: 12, ..same }),
        ("groups", [2, 6, 7, 7], [9, 2, 3, 3], Conv2d { groups: 3, ..same }),
        ("patches", [1, 3, 32, 32], [6, 3, 8, 8], Conv2d { stride: (8, 8), ..PLAIN }),
        ("row_kernel", [1, 2, 4, 33], [2, 2, 1, 7], PLAIN),
        ("whole_image", [1, 2, 7, 9], [3, 2, 7, 9], PLAIN),
        ("no_batch", [0, 2, 5, 5], [3, 2, 3, 3], PLAIN),
    ];
    table.extend(rows.map(|(name, x, weight, geometry)| conv(name, x, weight, geometry)));
    for h in [8, 9] {
        let mut b = Build::new(format!("conv2d/symbol/h{h}")).within(Tolerance::product(18));
        let h = b.symbol("h", h);
        let x = b.f32("x", [Dim::new(1), Dim::new(2), h, Dim::new(6)]);
        let w = b.weight("w", &[3, 2, 3, 3], Format::F32);
        let y = b.op(Op::Conv2d(Conv2d { stride: (2, 2), ..same }), &[x, w]);
        table.push(b.done(y));
    }
    let mut b = Build::new("conv2d/channels_last").within(Tolerance::product(18));
    let x = b.f32("x", [1, 6, 7, 2]);
    let x = b.transpose(x, &[0, 3, 1, 2]);
    let w = b.f32("w", [3, 2, 3, 3]);
    let y = b.op(Op::Conv2d(PLAIN), &[x, w]);
    table.push(b.done(y));
}

fn pool(name: &str, x: [u64; 4], pool: Pool2d) -> Case {
    let tolerance = match pool.kind {
        PoolKind::Max => Tolerance::EXACT,
        PoolKind::Mean => Tolerance { atol: 2e-6, ..Tolerance::relative(2e-6) },
    };
    let kind = if pool.kind == PoolKind::Max { "max" } else { "mean" };
    let mut b = Build::new(format!("pool2d/{kind}/{name}")).within(tolerance);
    let x = b.f32("x", x);
    let y = b.op(Op::Pool2d(pool), &[x]);
    b.done(y)
}

fn pools(table: &mut Vec<Case>) {
    for kind in [PoolKind::Max, PoolKind::Mean] {
        let plain = Pool2d { kind, ..POOL };
        let three = Pool2d { kernel: (3, 3), pad_before: (1, 1), pad_after: (1, 1), ..plain };
        let uneven = Pool2d { pad_before: (0, 1), pad_after: (1, 0), stride: (1, 2), ..plain };
        table.push(pool("two", [2, 3, 8, 6], plain));
        table.push(pool("odd", [1, 5, 9, 7], plain));
        table.push(pool("three_padded", [1, 3, 11, 10], three));
        table.push(pool("uneven", [1, 2, 6, 5], uneven));
        table.push(pool("dilated", [1, 2, 9, 9], Pool2d { dilation: (2, 3), ..plain }));
        table.push(pool("whole_image", [2, 7, 5, 9], Pool2d { kernel: (5, 9), ..plain }));
    }
    let counted = Pool2d {
        kind: PoolKind::Mean,
        kernel: (3, 3),
        pad_before: (1, 1),
        pad_after: (1, 1),
        count_pad: true,
        ..POOL
    };
    table.push(pool("padding_counts", [1, 3, 11, 10], counted));
}

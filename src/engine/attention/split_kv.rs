//! Flash decoding (split-KV, Dao et al. 2023): attention of few tokens over many keys, with the
//! keys split over workgroups.
//!
//! `attn_split_kv` computes partial results (output, maximum and sum) of slices of the keys;
//! `attn_split_kv_reduce` reduces them in a second launch. Planning chooses the number of slices
//! from the device and the upper bound of keys. Their length depends on the keys of a run;
//! workgroups with empty slices, because the past is short, exit at once.

use crate::base::{DType, Dim, Shape};
use crate::engine::attention::single_pass::{
    FEW_TOKENS, Place, groups_fit, in_quads, leaves_idle, operands, plain_scores, readers_and_keys,
    reads, spans, units, whole_blocks,
};
use crate::engine::knobs::Knob;
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::{F16_KV, MAX_SPLIT_HEAD_DIM, MAX_SPLITS};
use crate::provider::DeviceKind;

/// The number of keys in a slice is a multiple of this.
const GRANULE: u64 = 32;
/// Target number of workgroups per compute unit.
const OVERSUBSCRIBED: f64 = 2.0;
/// Maximum query heads per workgroup.
const MOST_HEADS: u32 = 8;
/// Threads per workgroup of `attn_split_kv`; halved if workgroup memory does not suffice.
const SPLIT_THREADS: u32 = 128;
/// Threads per workgroup of `attn_split_kv_reduce`.
const COMBINE_THREADS: u32 = 256;
/// Words of workgroup memory that every device has.
const MEMORY_WORDS: u32 = 4096;

/// Fraction of the bandwidth of a discrete GPU that the kernel reaches if one workgroup per head
/// would leave at least half of the device idle: the query heads of a workgroup share their reads
/// of keys and values. Measured on an H200 with 32 heads of dimension 128, 8 key heads and 128
/// keys: 7.1 us, against 10.0 us for `attn_decode`. With 9 heads of dimension 64, a single launch
/// is still estimated to be faster.
const SPREAD: f64 = 0.35;

/// Engine that launches `attn_split_kv`, then `attn_split_kv_reduce`.
pub(in crate::engine) struct SplitAttention {
    id: EngineId,
}

impl SplitAttention {
    pub(in crate::engine) fn new() -> SplitAttention {
        SplitAttention { id: EngineId::new("wgsl.attn_split_kv") }
    }
}

/// How keys and heads are split.
struct Cut {
    /// Number of slices of the keys.
    splits: Knob,
    /// Query heads per workgroup.
    heads: u32,
    /// Number of workgroups that share the query heads of one KV head.
    chunks: u64,
    /// Threads per workgroup of `attn_split_kv`.
    threads: u32,
}

/// Returns the tokens, heads, KV heads, head dimension and keys at the upper ends of the shape
/// class.
fn uppers(query: &Query) -> Result<[u64; 5]> {
    let [q, k, ..] = query.operands else {
        return Err(Error::invalid(format!("{} operands of attention", query.operands.len())));
    };
    let upper = |view: &View, axis: usize| query.upper(&view.shape[axis]);
    Ok([upper(q, 0)?, upper(q, 1)?, upper(k, 1)?.max(1), upper(q, 2)?, upper(k, 0)?])
}

fn cut(query: &Query) -> Result<Cut> {
    let [tokens, heads, kv_heads, head_dim, keys] = uppers(query)?;
    let group = heads.div_ceil(kv_heads).max(1);
    let mut chunks = group.div_ceil(u64::from(MOST_HEADS));
    let mut threads = SPLIT_THREADS;
    // Sized for the kernel without `vec4`, which needs at least as much memory.
    let words = |threads: u32, heads: u64| {
        let (heads, teams) = (heads as u32, (threads / (head_dim as u32 / 4).max(1)).max(1));
        heads * teams * head_dim as u32 + heads * (threads / 4) * 7 + 2 * heads
    };
    while words(threads, group.div_ceil(chunks)) > MEMORY_WORDS {
        if threads > 64 {
            threads /= 2;
        } else {
            chunks += 1;
        }
    }
    let groups = (tokens * kv_heads * chunks).max(1) as f64;
    let wanted = (OVERSUBSCRIBED * units(query.profile) / groups).ceil() as u32;
    let most = keys.div_ceil(GRANULE).clamp(1, u64::from(MAX_SPLITS)) as u32;
    let splits = Knob::new("splits", "slices of the keys", 1..=most, wanted.clamp(1, most));
    Ok(Cut { splits, heads: group.div_ceil(chunks) as u32, chunks, threads })
}

impl Engine for SplitAttention {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Attention { .. }) {
            return Err(OTHER_OPERATION.into());
        }
        if !query.is_wgsl() {
            return Err("the device splits keys in its own way".into());
        }
        reads(query)?;
        plain_scores(query)?;
        groups_fit(query, 1)?;
        let [tokens, _, _, head_dim, _] = uppers(query).map_err(|e| e.to_string())?;
        if tokens > FEW_TOKENS && spans(query).is_none() {
            return Err(format!("{tokens} tokens, at most {FEW_TOKENS} are supported"));
        }
        match query.operands[0].shape[2].as_const() {
            Some(_) if (1..=u64::from(MAX_SPLIT_HEAD_DIM)).contains(&head_dim) => Ok(()),
            size => Err(format!("a head of {size:?} elements, at most {MAX_SPLIT_HEAD_DIM} fit")),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        whole_blocks(query)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the slices of the keys depend on the number of tokens and the maximum number of keys"
            .into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        cut(query).map_or_else(|_| Vec::new(), |cut| vec![cut.splits])
    }

    fn cost(&self, query: &Query) -> Cost {
        let (Ok([tokens, heads, ..]), Ok(cut), [q, k, ..]) =
            (uppers(query), cut(query), query.operands)
        else {
            return Cost::default();
        };
        let (readers, keys) = readers_and_keys(query, [q, k]);
        let flops = 4.0 * keys * query.output_elements();
        // Partial results are written and read once.
        let splits = cut.splits.value(query.knobs);
        let part = 8.0 * f64::from(splits) * query.output_elements();
        let bytes = query.total_bytes() * readers + part;
        // As in `attn_decode`, the tiles of a slice are processed one after another; they are
        // smaller.
        let tiles = (keys / f64::from(splits * cut.threads / 4)).ceil();
        let idle = query.profile.kind == DeviceKind::Discrete
            && leaves_idle(query.profile, (tokens * heads) as f64);
        let efficiency = if idle { SPREAD } else { 0.2 };
        // The heads of a workgroup are also processed one after another.
        let turns = 0.2 * tiles + 0.1 * f64::from(cut.heads);
        Cost { bytes, flops, dispatches: 2.0 + turns, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Attention { scale, causal, window, .. } = query.op else {
            return Err(Error::invalid(format!("{} is not attention", query.op.name())));
        };
        let cut = cut(query)?;
        let splits = cut.splits.value(query.knobs);
        let [q, k, v] = operands(query, out)?;
        let place = Place::new(query, out)?;
        let (tokens, heads, head_dim) = (&q.shape[0], &q.shape[1], &q.shape[2]);
        let kv_heads = &k.shape[1];
        let size = query.upper(head_dim)? as u32;
        let both = |call: Call| -> Result<Call> {
            Ok(call
                .dim("tokens", tokens)?
                .dim("heads", heads)?
                .dim("head_dim", head_dim)?
                .dim("kv_len", &k.shape[0])?
                .u32("window", window.unwrap_or(0))
                .u32("causal", u32::from(*causal))
                .u32("splits", splits)
                .u32("granule", GRANULE as u32))
        };
        let rows = tokens.clone() * heads.clone() * Dim::from(splits);
        let shape = Shape::new([rows * (head_dim.clone() + Dim::new(2))]);
        let part = out.temp(format!("{}.part", out.label), &shape, DType::F32)?;

        let mut spec = AssetSpec::new(place.kernel("attn_split_kv"))
            .constant("WG", cut.threads)
            .constant("HEAD_DIM", size)
            .constant("HEADS", cut.heads);
        if in_quads([&q, &k, &v]) {
            spec = spec.define("vec4");
        }
        if k.dtype == DType::F16 {
            spec = spec.define(F16_KV);
        }
        let groups = kv_heads.clone() * Dim::from(cut.chunks);
        out.call(
            both(Call::new(spec))?
                .dim("kv_heads", kv_heads)?
                .heads([&q, &k, &v])?
                .place(&place)?
                .f32("scale", *scale)
                .bind(part.tensor)
                .grid([groups, tokens.clone(), Dim::from(splits)]),
        )?;
        let spec = AssetSpec::new(place.kernel("attn_split_kv_reduce"))
            .constant("WG", COMBINE_THREADS)
            .constant("HEAD_DIM", size);
        out.call(
            both(Call::new(spec))?
                .dim("y_offset", &query.output.layout.offset)?
                .bind(part.tensor)
                .place(&place)?
                .bind(query.output.tensor)
                .around_query(query)?
                .grid([heads.clone(), tokens.clone(), Dim::new(1)]),
        )
    }
}

#[cfg(test)]
pub(in crate::engine) mod tests {
    use crate::base::{DType, Dim, Shape, ShapeClass, Symbol};
    use crate::engine::Registry;
    use crate::ir::{Graph, Op};
    use crate::plan::{Options, Plan};
    use crate::provider::{DeviceKind, DeviceProfile};

    const PAST: Symbol = Symbol::new("past");

    /// Returns the kernels and grids for the attention of one token over up to `keys` keys of type
    /// `kv_type`.
    pub(in crate::engine) fn kernels_on(
        profile: &DeviceProfile,
        [heads, kv_heads, head_dim]: [i64; 3],
        (keys, kv_type): (u64, DType),
    ) -> Vec<String> {
        let mut graph = Graph::new("decode");
        let input = |graph: &mut Graph, name: &str, dims: [Dim; 3], dtype: DType| {
            graph.input(name, Shape::new(dims), dtype)
        };
        let past = Dim::symbol(PAST);
        let q = [1.into(), heads.into(), head_dim.into()];
        let q = input(&mut graph, "q", q, DType::F32);
        let kv = [past.clone() + Dim::new(1), kv_heads.into(), head_dim.into()];
        let k = input(&mut graph, "k", kv.clone(), kv_type);
        let v = input(&mut graph, "v", kv, kv_type);
        let op = Op::attention(0.125, true, None, past);
        let y = graph.add(op, &[q, k, v]).unwrap();
        graph.output("y", y).unwrap();
        let class = ShapeClass::new().with(PAST, 0, keys - 1);
        let registry = Registry::builtin();
        let plan = Plan::new(&graph, &class, profile, &Options::new(&registry)).unwrap();
        let grid = |grid: &[Dim; 3]| grid.iter().map(|d| format!(" {d}")).collect::<String>();
        plan.steps.iter().map(|step| format!("{}{}", step.kernel, grid(&step.grid))).collect()
    }

    fn kernels(heads: [i64; 3], keys: u64, kind: DeviceKind, units: u32) -> Vec<String> {
        // Subgroup sizes that `attn_subgroup` does not support.
        let profile = DeviceProfile::webgpu_floor("test").with(|p| {
            p.kind = kind;
            p.compute_units = units;
            p.has_subgroups = true;
            p.subgroup_min = 32;
            p.subgroup_max = 64;
        });
        kernels_on(&profile, heads, (keys, DType::F32))
    }

    #[test]
    fn many_keys_are_spread_over_an_idle_device() {
        let discrete = DeviceKind::Discrete;
        let smol = kernels([9, 3, 64], 2048, discrete, 132);
        assert_eq!(
            smol,
            [
                "attn_split_kv+vec4(HEADS=3,HEAD_DIM=64,WG=128) 3 1 64",
                "attn_split_kv_reduce(HEAD_DIM=64,WG=256) 9 1 1"
            ]
        );
        // 7 heads of a group need more memory than 128 threads leave; 32 heads are four chunks.
        let qwen = kernels([14, 2, 64], 1024, discrete, 0);
        assert!(qwen[0].contains("HEADS=7,HEAD_DIM=64,WG=64) 2 1 32"), "{qwen:?}");
        let shared = kernels([32, 1, 128], 4096, discrete, 132);
        assert!(shared[0].contains("HEADS=8,HEAD_DIM=128,WG=64) 4 1 64"), "{shared:?}");
        // As measured on an H200, whose bandwidth CUDA does not report.
        let few = kernels([32, 8, 128], 128, discrete, 132);
        assert!(few[0].contains("HEADS=4,HEAD_DIM=128,WG=128) 8 1 4"), "{few:?}");
        for (keys, kind, units) in [(128, discrete, 132), (2048, DeviceKind::Integrated, 10)] {
            let one = kernels([9, 3, 64], keys, kind, units);
            assert!(one.len() == 1 && one[0].starts_with("attn_decode"), "{one:?}");
        }
    }
}

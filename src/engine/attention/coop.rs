//! Flash attention for prefill on tensor cores (cooperative matrices), with keys and values in f16.
//!
//! Similar to FlashAttention, but with two passes over the keys: the first computes the softmax
//! maxima, the second the sums. A cooperative matrix has no row scaling, so accumulators cannot be
//! rescaled as a running maximum grows (online softmax), and scores are computed twice. Queries and
//! softmax weights are f16, which the graph must allow (`ComputeMode::F16`).

use crate::base::{ComputeMode, DType, Dim};
use crate::engine::attention::single_pass::{
    groups_fit, in_quads, plain_scores, reads, spans, units,
};
use crate::engine::gemm::coop::{CoopLinear, MATRIX_UNITS};
use crate::engine::heuristic::Peaks;
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::PREFILL_TOKENS;

/// Maximum head dimension.
const MOST_HEAD: u32 = 128;
/// Side of a cooperative matrix; the head dimension is a multiple of it.
const SIDE: u32 = 16;
/// Subgroups per workgroup; each computes 16 tokens.
const SUBGROUPS: u32 = 4;
/// Fraction of the peak arithmetic rate that the kernel reaches; the same estimate as for
/// `attn_prefill`.
const EFFICIENCY: f64 = 0.2;
/// Multiply-adds per query, key and element of a head: two for the score, which is computed twice,
/// and one for the weighted sum of values.
const PRODUCTS: f64 = 3.0;

/// Engine for the kernel `attn_coop`.
pub(in crate::engine) struct CoopAttention {
    id: EngineId,
}

impl CoopAttention {
    pub(in crate::engine) fn new() -> CoopAttention {
        CoopAttention { id: EngineId::new("wgsl.attn_coop") }
    }
}

/// Returns the upper bounds of the tokens, heads, head dimension and keys, in this order.
fn sizes(query: &Query) -> Option<[u64; 4]> {
    let [q, k, ..] = query.operands else { return None };
    let upper = |dim: &Dim| query.upper(dim).ok();
    Some([upper(&q.shape[0])?, upper(&q.shape[1])?, upper(&q.shape[2])?, upper(&k.shape[0])?])
}

/// Returns the size in bytes of a workgroup's memory: a tile of keys or values in f16, softmax
/// weights in f16, scores in f32, a word per thread, and the number of keys. Rows are padded by 16
/// bytes.
fn memory(head: u32, keys: u32, threads: u32) -> u32 {
    let tile = keys * (2 * head + 16);
    tile + PREFILL_TOKENS * (2 * keys + 16 + 4 * keys + 16) + 4 * threads + 16
}

fn keys_of(query: &Query, head: u64) -> Knob {
    let room = query.profile.workgroup_memory_bytes;
    let threads = SUBGROUPS * query.profile.subgroup_max;
    let fits = |keys: &u32| memory(head as u32, *keys, threads) <= room;
    let most = powers(SIDE, 64).filter(fits).max().unwrap_or(SIDE);
    Knob::new("keys", "keys of a tile", powers(SIDE, most), most.min(32))
}

impl Engine for CoopAttention {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::Attention { mode, .. }, [_, k, ..]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        if *mode == ComputeMode::F32 || !query.is_wgsl() {
            return Err(OTHER_OPERATION.into());
        }
        reads(query)?;
        plain_scores(query)?;
        if k.dtype != DType::F16 {
            return Err(format!("keys and values of {}", k.dtype));
        }
        if spans(query).is_some() {
            return Err("tokens see spans of keys, which need not be neighbours".into());
        }
        CoopLinear::fits_tiles(query)?;
        groups_fit(query, PREFILL_TOKENS)?;
        let head = query.operands[0].shape[2].as_const().and_then(|size| u32::try_from(size).ok());
        let Some(head) = head.filter(|n| (1..=MOST_HEAD).contains(n) && n % SIDE == 0) else {
            let size = &query.operands[0].shape[2];
            return Err(format!(
                "a head of {size} elements, it takes multiples of {SIDE} up to {MOST_HEAD}"
            ));
        };
        let profile = query.profile;
        let need = memory(head, SIDE, SUBGROUPS * profile.subgroup_max);
        let room = profile.workgroup_memory_bytes;
        if need > room {
            return Err(format!("tiles take {need} bytes of the {room} a workgroup has"));
        }
        match query.operands {
            [q, k, v]
                if in_quads([q, k, v]) && [q, k, v].iter().all(|x| x.layout.strides[2].is(1)) =>
            {
                Ok(())
            }
            _ => Err("heads have gaps or do not start at multiples of four elements".into()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the summation order of tensor cores is unknown".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        sizes(query).map_or_else(Vec::new, |[_, _, head, _]| vec![keys_of(query, head)])
    }

    fn cost(&self, query: &Query) -> Cost {
        let Some([tokens, heads, head, keys]) = sizes(query) else { return Cost::default() };
        let layers = tokens.div_ceil(u64::from(PREFILL_TOKENS)) as f64;
        let rows = layers * f64::from(PREFILL_TOKENS);
        let (heads, head, keys) = (heads as f64, head as f64, keys as f64);
        // Tiles are computed whole, even if few of their rows are tokens.
        let flops = 2.0 * PRODUCTS * rows * heads * head * keys / MATRIX_UNITS;
        let peaks = Peaks::of(query.profile);
        let rounds = (layers * heads / units(query.profile)).ceil();
        let wait = query.profile.calibration.attention_coop_key_seconds;
        let waits = wait * keys * head / f64::from(MOST_HEAD) * rounds;
        Cost {
            bytes: query.total_bytes(),
            flops: flops.max(waits * peaks.flops_per_s * EFFICIENCY),
            dispatches: 1.0,
            efficiency: EFFICIENCY,
        }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Attention { past, .. } = query.op else {
            return Err(Error::invalid(format!("{} is not attention", query.op.name())));
        };
        let [q, k, v] = query.operands else {
            return Err(Error::invalid(format!("{}: attention needs three operands", query.label)));
        };
        let (tokens, heads, head_dim) = (&q.shape[0], &q.shape[1], &q.shape[2]);
        let size = query.upper(head_dim)?;
        let spec = AssetSpec::new("attn_coop")
            .constant("HEAD_DIM", size as u32)
            .constant("KEYS", keys_of(query, size).value(query.knobs))
            .constant("SUB", query.profile.subgroup_max);
        out.call(
            Call::new(spec)
                .attention(query, [q, k, v])?
                .dim("past", past)?
                .bind(query.output.tensor)
                .around_query(query)?
                .grid([heads.clone(), tokens.ceil_div(&Dim::from(PREFILL_TOKENS)), Dim::new(1)]),
        )
    }
}

//! Attention of few tokens in one launch, with an online softmax in subgroups; several lanes share
//! a key.

use crate::base::DType;
use crate::engine::attention::single_pass::{
    FEW_TOKENS, Place, groups_fit, leaves_idle, operands, plain_scores, readers_and_keys, reads,
    spans, whole_blocks,
};
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::F16_KV;
use crate::provider::DeviceKind;

/// Bytes of a key that one lane reads.
const LANE_BYTES: i64 = 16;
/// Maximum words of workgroup memory for partial sums.
const SUM_WORDS: u32 = 2048;
/// Engine for the kernel `attn_subgroup`.
pub(in crate::engine) struct LanesAttention {
    id: EngineId,
}

impl LanesAttention {
    pub(in crate::engine) fn new() -> LanesAttention {
        LanesAttention { id: EngineId::new("wgsl.attn_subgroup") }
    }
}

/// Returns the head dimension, if the kernel supports it.
pub(in crate::engine) fn head(query: &Query) -> Result<u32, String> {
    let [_, k, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
    let each = LANE_BYTES / k.dtype.bytes() as i64;
    match k.shape[2].as_const() {
        Some(size @ (32 | 64 | 128 | 256)) if size / each <= 32 => Ok(size as u32),
        size => Err(format!("a head of {size:?} elements of {}", k.dtype)),
    }
}

/// Returns whether every head is contiguous and starts at a multiple of 16 bytes, for elements of
/// `bytes` bytes.
pub(in crate::engine) fn aligned(view: &View, bytes: u64) -> bool {
    let each = LANE_BYTES as u64 / bytes;
    let [token, head, element] = &view.layout.strides[..] else { return false };
    let strides = [token, head, &view.layout.offset];
    element.is(1) && strides.iter().all(|dim| dim.is_multiple_of(each as i64))
}

fn knobs_of(query: &Query) -> [Knob; 2] {
    let head = head(query).unwrap_or(64);
    // Other devices may have fewer registers per thread.
    let large = query.profile.kind == DeviceKind::Discrete;
    let most = query.profile.max_threads_per_workgroup.min(if large { 1024 } else { 256 });
    let most = most.min(SUM_WORDS / head * 32).max(head);
    let threads = "threads of a workgroup, which computes one head";
    let threads = Knob::new("threads", threads, powers(head.min(most), most), most);
    [threads, Knob::new("keys", "keys in flight in the lanes of a subgroup", [2, 4, 8], 4)]
}

impl Engine for LanesAttention {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let Op::Attention { .. } = query.op else { return Err(OTHER_OPERATION.into()) };
        if !query.is_wgsl() {
            return Err("the device splits keys in its own way".into());
        }
        let profile = query.profile;
        if !profile.has_subgroups || [profile.subgroup_min, profile.subgroup_max] != [32, 32] {
            return Err("subgroups are not of 32 lanes".into());
        }
        reads(query)?;
        plain_scores(query)?;
        groups_fit(query, 1)?;
        let size = head(query)?;
        if size > profile.max_threads_per_workgroup {
            return Err(format!("a head of {size} elements needs as many threads"));
        }
        let [q, k, v, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
        let bytes = k.dtype.bytes();
        match aligned(q, 4) && aligned(k, bytes) && aligned(v, bytes) {
            true => Ok(()),
            false => Err("heads do not start at multiples of 16 bytes".into()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        whole_blocks(query)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the subgroup that adds a key depends on the number of keys".into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        knobs_of(query).into()
    }

    fn cost(&self, query: &Query) -> Cost {
        let [q, k, ..] = query.operands else { return Cost::default() };
        let upper = |view: &View, axis: usize| query.upper(&view.shape[axis]).unwrap_or(1) as f64;
        let (tokens, heads) = (upper(q, 0), upper(q, 1));
        let (readers, keys) = readers_and_keys(query, [q, k]);
        let flops = 4.0 * keys * query.output_elements();
        // One workgroup reads all keys of its head; many share the device's bandwidth.
        let own = 2.0 * keys * upper(k, 2) * k.dtype.bytes() as f64;
        let idle = query.profile.kind == DeviceKind::Discrete
            && leaves_idle(query.profile, tokens * heads);
        let of_launch = query.profile.calibration.attention_bytes_per_launch;
        let waits = if idle { own / of_launch } else { 0.0 };
        let many = tokens > FEW_TOKENS as f64 && spans(query).is_none();
        let penalty = if many { 4.0 } else { 1.0 };
        let bytes = query.total_bytes() * readers * penalty;
        Cost { bytes, flops: flops * penalty, dispatches: 1.0 + waits, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [q, k, v] = operands(query, out)?;
        let place = Place::new(query, out)?;
        let [threads, keys] = knobs_of(query).map(|knob| knob.value(query.knobs));
        let mut spec = AssetSpec::new(place.kernel("attn_subgroup"))
            .constant("WG", threads)
            .constant("HEAD_DIM", query.upper(&q.shape[2])? as u32)
            .constant("AT_ONCE", keys)
            .define("subgroup");
        if k.dtype == DType::F16 {
            spec = spec.define(F16_KV);
        }
        out.call(
            Call::new(spec)
                .attention(query, [&q, &k, &v])?
                .place(&place)?
                .bind(query.output.tensor)
                .around_query(query)?
                .grid([q.shape[1].clone(), q.shape[0].clone(), 1.into()]),
        )
    }
}

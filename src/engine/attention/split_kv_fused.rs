//! Flash decoding (split-KV) in a single launch: the last workgroup to finish reduces the partial
//! results (like the last-block reduction of CUDA's `threadFenceReduction` sample).
//!
//! Keys are split into slices as for `attn_split_kv`, and lanes share keys as in `attn_subgroup`.
//! Atomic tickets in words that are zero before and after a run (`TensorRole::Counters`) identify
//! the last workgroup. WGSL does not order memory accesses between workgroups, so the kernel is
//! limited to devices whose barriers do.

use crate::base::{DType, Dim, Shape};
use crate::engine::attention::single_pass::{
    FEW_TOKENS, Place, groups_fit, leaves_idle, operands, plain_scores, readers_and_keys, reads,
    spans, units, whole_blocks,
};
use crate::engine::attention::subgroup::{aligned, head};
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::Op;
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::{F16_KV, SETTLED, SPREAD_SPLITS};

/// Maximum query heads per workgroup; each needs registers for its query and its sums. If the
/// workgroups of one token leave compute units idle, the calibration may choose one head per
/// workgroup. Measured with enough workgroups, on an H200 through CUDA: Llama-3.2-1B generates
/// 2,341 tokens/s with two heads per workgroup and 2,306 with one.
const MOST_HEADS: u64 = 2;
/// Keys that a small workgroup of a single token reads at once, four per group of lanes that share
/// a key. Used if the head dimension is at least `split_kv_small_workgroup_head` of the
/// calibration.
const ALONE_GRANULE: u32 = 64;
/// KV cache capacity, in keys, from which eight keys are in flight instead of two or four. A plan
/// knows the capacity, but not the number of keys. Measured on an H200 with Llama-3.1-8B through
/// CUDA, in tokens/s with eight and with two keys: 561 and 548 after 3,000 keys, 510 and 479 after
/// 7,000, 329 and 269 after 32,768; after 640 keys, two were faster.
const LONG_CONTEXT: u64 = 8192;
/// Target number of workgroups per compute unit.
const OVERSUBSCRIBED: f64 = 2.0;
/// Words of workgroup memory that every device has.
const MEMORY_WORDS: u32 = 4096;
/// Number of additional buffers that the kernel binds: partial results and tickets.
const SCRATCH: usize = 2;
/// Cost of tickets and reduction, in launch times. Measured on an H200 after 512 to 640 keys, in
/// tokens/s, against the faster of `attn_subgroup` and `attn_split_kv` in the same or the previous
/// build. Through CUDA: Llama-3.1-8B 561 against 539, Llama-3.2-1B 2,141 against 2,060,
/// Qwen2.5-0.5B 1,693 against 1,555, SmolLM2-135M 2,046 against 1,768. Through Vulkan: 403 against
/// 388, 1,313 against 1,306, 1,214 against 1,192, and 1,280 against 1,248.
const TOGETHER: f64 = 0.8;

/// Engine for the kernel `attn_split_kv_fused`.
pub(in crate::engine) struct SpreadAttention {
    id: EngineId,
}

impl SpreadAttention {
    pub(in crate::engine) fn new() -> SpreadAttention {
        SpreadAttention { id: EngineId::new("wgsl.attn_split_kv_fused") }
    }
}

/// How keys and heads are split.
struct Cut {
    /// Knobs for the threads per workgroup, the keys in flight and the number of slices.
    knobs: [Knob; 3],
    /// Keys that a workgroup reads at once; the number of keys in a slice is a multiple of it.
    granule: u32,
    /// Query heads per workgroup.
    heads: u64,
    /// Number of workgroups that share the query heads of one KV head.
    chunks: u64,
    /// Whether the kernel loads keys of earlier runs before it waits for the rows of this run
    /// (programmatic dependent launch). Without overlapping launches this gains nothing. With many
    /// keys, a workgroup runs several iterations, and the later ones lose more than the first one
    /// gains.
    early: bool,
}

impl Cut {
    fn values(&self, query: &Query) -> [u32; 3] {
        [0, 1, 2].map(|i| self.knobs[i].value(query.knobs))
    }
}

/// Returns the number of keys that a workgroup reads at once, with `keys` in flight per group of
/// lanes that share a key.
fn granule(query: &Query, threads: u32, keys: u32) -> Result<u32, String> {
    Ok(threads / lanes(query)? * keys)
}

/// Returns the number of lanes that share a key; each reads 16 bytes of it.
fn lanes(query: &Query) -> Result<u32, String> {
    let [_, k, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
    Ok((head(query)? * k.dtype.bytes() as u32 / 16).max(1))
}

/// Chooses the knobs and the split of keys and heads.
///
/// # Errors
/// Returns the reason why the kernel does not apply.
fn cut(query: &Query) -> Result<Cut, String> {
    let [q, k, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
    let upper =
        |view: &View, axis: usize| query.upper(&view.shape[axis]).map_err(|e| e.to_string());
    let (tokens, heads) = (upper(q, 0)?, upper(q, 1)?);
    let (kv_heads, all) = (upper(k, 1)?.max(1), upper(k, 0)?);
    let size = head(query)?;
    let group = heads.div_ceil(kv_heads).max(1);
    // Tokens with spans share the capacity. Measured on an H200 for eight sequences of
    // Llama-3.1-8B, with eight and with two keys in flight: 16.7 and 14.1 us after 544 keys each,
    // 21.8 and 19.4 after 1,024.
    let own = if spans(query).is_some() { all / tokens.max(1) } else { all };
    let long = own >= LONG_CONTEXT;
    let alone = tokens == 1 && !long;
    let measured = &query.profile.calibration;
    let most_heads = match kv_heads * group.div_ceil(MOST_HEADS) * u64::from(SPREAD_SPLITS) {
        workgroups
            if measured.split_kv_single_heads
                && alone
                && (workgroups as f64) < units(query.profile) =>
        {
            1
        }
        _ => MOST_HEADS,
    };
    let chunks = group.div_ceil(most_heads);
    let heads = group.div_ceil(chunks);
    let words = |threads: u32| {
        let heads = heads as u32;
        threads / 32 * heads * (size + 2) + heads * (size + SPREAD_SPLITS) + 1
    };
    let most = query.profile.max_threads_per_workgroup.min(256);
    let fit = powers(64, most.max(64)).filter(|threads| words(*threads) <= MEMORY_WORDS);
    let fit: Vec<u32> = fit.collect();
    let largest = *fit.last().ok_or("no workgroup has the memory for its heads")?;
    let lanes = lanes(query)?;
    let (threads, few) = match long {
        true => (largest, 8),
        false if alone && size >= measured.split_kv_small_workgroup_head => {
            ((ALONE_GRANULE / 4 * lanes).clamp(64, largest), 4)
        }
        false => (largest, 2),
    };
    let threads = Knob::new("threads", "threads of a workgroup", fit, threads);
    let early = query.past_kv_is_final && query.profile.has_launch_overlap && !long;
    let keys = "keys in flight in the lanes of a subgroup";
    let keys = Knob::new("keys", keys, [2, 4, 8], few);
    let granule = granule(query, threads.value(query.knobs), keys.value(query.knobs))?;
    let groups = (tokens * kv_heads * chunks).max(1) as f64;
    let wanted = (OVERSUBSCRIBED * units(query.profile) / groups).ceil() as u32;
    let most = all.div_ceil(u64::from(granule.max(1))).clamp(1, u64::from(SPREAD_SPLITS)) as u32;
    let splits = Knob::new("splits", "slices of the keys", 1..=most, wanted.clamp(1, most));
    Ok(Cut { knobs: [threads, keys, splits], granule, heads, chunks, early })
}

impl Engine for SpreadAttention {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let Op::Attention { .. } = query.op else { return Err(OTHER_OPERATION.into()) };
        let profile = query.profile;
        if !query.is_wgsl() || !profile.has_device_scope_barrier {
            return Err("workgroups cannot synchronise with each other".into());
        }
        if !profile.has_subgroups || [profile.subgroup_min, profile.subgroup_max] != [32, 32] {
            return Err("subgroups are not of 32 lanes".into());
        }
        reads(query)?;
        plain_scores(query)?;
        groups_fit(query, 1)?;
        cut(query)?;
        let [q, k, v, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
        let bytes = k.dtype.bytes();
        match aligned(q, 4) && aligned(k, bytes) && aligned(v, bytes) {
            true => Ok(()),
            false => Err("heads do not start at multiples of 16 bytes".into()),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(SCRATCH)
    }

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        whole_blocks(query)
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Err("the slices of the keys depend on the number of tokens and the maximum number of keys"
            .into())
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        cut(query).map_or_else(|_| Vec::new(), |cut| cut.knobs.into())
    }

    fn cost(&self, query: &Query) -> Cost {
        let [q, k, ..] = query.operands else { return Cost::default() };
        let upper = |view: &View, axis: usize| query.upper(&view.shape[axis]).unwrap_or(1) as f64;
        let (tokens, heads) = (upper(q, 0), upper(q, 1));
        let (readers, keys) = readers_and_keys(query, [q, k]);
        let flops = 4.0 * keys * query.output_elements();
        let idle = leaves_idle(query.profile, tokens * heads);
        let many = tokens > FEW_TOKENS as f64 && spans(query).is_none();
        let penalty = if many { 4.0 } else { 1.0 };
        let bytes = query.total_bytes() * readers * penalty;
        // If one workgroup per head fills the device, split-KV gains nothing, except on some
        // devices for tokens that share no keys.
        let apart = spans(query).and(query.profile.calibration.split_kv_sequences_share);
        let efficiency = apart.unwrap_or(if idle { 0.5 } else { 0.35 });
        Cost { bytes, flops: flops * penalty, dispatches: 1.0 + TOGETHER, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let cut = cut(query).map_err(Error::invalid)?;
        let [threads, keys, splits] = cut.values(query);
        let [q, k, v] = operands(query, out)?;
        let place = Place::new(query, out)?;
        let (tokens, head_dim) = (&q.shape[0], &q.shape[2]);
        let teams = k.shape[1].clone() * Dim::from(cut.chunks);
        let rows = tokens.clone() * teams.clone() * Dim::from(splits) * Dim::from(cut.heads);
        let shape = Shape::new([rows * (head_dim.clone() + Dim::new(2))]);
        let part = out.temp(format!("{}.part", out.label), &shape, DType::F32)?;
        let tickets = tokens.clone() * teams.clone();
        let tickets = out.counters(format!("{}.tickets", out.label), &tickets)?;
        let mut spec = AssetSpec::new(place.kernel("attn_split_kv_fused"))
            .constant("WG", threads)
            .constant("HEAD_DIM", query.upper(head_dim)? as u32)
            .constant("HEADS", cut.heads as u32)
            .constant("AT_ONCE", keys)
            .define("subgroup");
        if k.dtype == DType::F16 {
            spec = spec.define(F16_KV);
        }
        if cut.early {
            spec = spec.define(SETTLED);
        }
        out.call(
            Call::new(spec)
                .attention(query, [&q, &k, &v])?
                .u32("splits", splits)
                .u32("granule", cut.granule)
                .bind(part.tensor)
                .bind(tickets)
                .place(&place)?
                .bind(query.output.tensor)
                .around_query(query)?
                .grid([teams, tokens.clone(), Dim::from(splits)]),
        )
    }
}

#[cfg(test)]
mod tests {
    use crate::base::DType;
    use crate::engine::attention::split_kv::tests::kernels_on;
    use crate::provider::{DeviceKind, DeviceProfile};

    /// Returns the kernel and grid for the attention of one token over f16 keys and values on a
    /// device with 132 compute units.
    fn kernel(cuda: bool, heads: [i64; 3], keys: u64) -> String {
        let profile = DeviceProfile::webgpu_floor("test").with(|p| {
            p.has_device_scope_barrier = true;
            p.vendor = "NVIDIA".into();
            p.driver = "Vulkan NVIDIA".into();
            p.kind = DeviceKind::Discrete;
            p.compute_units = 132;
            p.has_f16 = true;
            p.has_subgroups = true;
            p.subgroup_min = 32;
            p.subgroup_max = 32;
            p.max_storage_buffers = 16;
        });
        let profile = if cuda { profile.with_cuda_features() } else { profile };
        let [kernel] = kernels_on(&profile, heads, (keys, DType::F16)).try_into().unwrap();
        kernel
    }

    #[test]
    fn one_token_has_workgroups_for_every_unit() {
        let cut = |keys: u32, heads: u32, dim: u32, threads: u32, grid: &str| {
            let sizes = format!("AT_ONCE={keys},HEADS={heads},HEAD_DIM={dim},WG={threads}");
            format!("attn_split_kv_fused+f16_kv+subgroup({sizes}) {grid}")
        };
        for (cuda, heads, keys, expected) in [
            (true, [9, 3, 64], 1024, cut(4, 1, 64, 128, "9 1 16")),
            (true, [14, 2, 64], 1024, cut(4, 1, 64, 128, "14 1 16")),
            (true, [32, 8, 64], 1024, cut(4, 2, 64, 128, "16 1 16")),
            (true, [32, 8, 128], 1024, cut(4, 2, 128, 256, "16 1 16")),
            (true, [32, 8, 128], 32768, cut(8, 2, 128, 256, "16 1 16")),
            (false, [9, 3, 64], 1024, cut(2, 2, 64, 256, "6 1 16")),
            (false, [20, 5, 128], 1024, cut(4, 2, 128, 256, "10 1 16")),
        ] {
            assert_eq!(kernel(cuda, heads, keys), expected, "{cuda} {heads:?}");
        }
    }
}

//! Grouped-query attention (GQA) in one pass with an online softmax (as in FlashAttention, but
//! without tensor cores), and rotary position embeddings.
//!
//! Keys and values are read in place from the KV cache for every group of query heads; no engine
//! expands the key heads to the query heads.

use crate::base::{ComputeMode, DType, Dim};
use crate::engine::gemm::operands::SOFTWARE_THREADS;
use crate::engine::knobs::{Knob, powers};
use crate::engine::lowering::{Call, Lowering, View};
use crate::engine::{Cost, Engine, EngineId, OTHER_OPERATION, Query, ReductionOrder};
use crate::error::{Error, Result};
use crate::ir::{Op, RopePairs};
use crate::kernel::AssetSpec;
use crate::kernel::catalogue::{F16_KV, IN_ORDER, MAX_HEAD_DIM, POINT_GROUP, PREFILL_TOKENS};
use crate::provider::{DeviceKind, DeviceProfile};

/// Maximum number of tokens at which the decode kernels are preferred to `attn_prefill`.
pub(in crate::engine) const FEW_TOKENS: u64 = 8;

/// Latency of an `attn_decode` workgroup per tile of 256 keys, in launch times per element of a
/// head. Measured on an H200 with 1,024 to 4,096 keys: 7.9 us per tile with a head dimension of
/// 128; about 5 us with 64, with a guess of the timestamps' share.
const TILE_WAIT: f64 = 0.03;
/// The same latency for `attn_prefill`. Measured on an H200 with a head dimension of 128: 217 us
/// for 512 keys, with 32 workgroups as well as with 256.
const PREFILL_WAIT: f64 = 0.42;
/// Fraction of the keys and values that the decode kernel reads from memory again for each further
/// token; the rest is cached.
const READ_AGAIN: f64 = 0.1;

/// Returns the number of compute units of a device; a guess by kind of device if the profile does
/// not report it.
pub(in crate::engine) fn units(profile: &DeviceProfile) -> f64 {
    match (profile.compute_units, profile.kind) {
        (0, DeviceKind::Discrete) => 128.0,
        (0, DeviceKind::Integrated) => 16.0,
        (0, _) => 8.0,
        (reported, _) => f64::from(reported),
    }
}

/// Returns whether a launch of `groups` workgroups leaves at least half of the device idle.
pub(in crate::engine) fn leaves_idle(profile: &DeviceProfile, groups: f64) -> bool {
    2.0 * groups <= units(profile)
}

/// Checks that workgroups, one per head, can quantise their output in whole blocks of 32 columns.
///
/// # Errors
/// Returns the reason if they cannot.
pub(in crate::engine) fn whole_blocks(query: &Query) -> Result<(), String> {
    let head = query.operands.first().and_then(|q| q.shape.dims().last()?.as_const());
    match head {
        _ if !query.is_wgsl() => Err("the device quantises in its own way".into()),
        Some(size) if size % ComputeMode::BLOCK as i64 == 0 => Ok(()),
        _ => Err(format!("a head of {head:?} elements is not blocks of {}", ComputeMode::BLOCK)),
    }
}

/// Engine for the kernel `attn_decode` or `attn_prefill`.
pub(in crate::engine) struct Attention {
    id: EngineId,
    prefill: bool,
    subgroup: bool,
}

impl Attention {
    pub(in crate::engine) fn all() -> [Attention; 3] {
        let new =
            |name, prefill, subgroup| Attention { id: EngineId::new(name), prefill, subgroup };
        [
            new("catalogue.attn_decode.subgroup", false, true),
            new("catalogue.attn_decode", false, false),
            new("catalogue.attn_prefill", true, false),
        ]
    }
}

impl Engine for Attention {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        if !matches!(query.op, Op::Attention { .. }) {
            return Err(OTHER_OPERATION.into());
        }
        if self.prefill && spans(query).is_some() {
            return Err("tokens see spans of keys, which need not be neighbours".into());
        }
        if self.subgroup && !(query.is_wgsl() && query.profile.has_subgroups) {
            return Err("the device has no subgroups".into());
        }
        reads(query)?;
        groups_fit(query, if self.prefill { PREFILL_TOKENS } else { 1 })?;
        let head = query.operands.first().and_then(|q| q.shape.dims().last()?.as_const());
        match head {
            Some(size) if (1..=i64::from(MAX_HEAD_DIM)).contains(&size) => Ok(()),
            _ => Err(format!("a head of {head:?} elements, at most {MAX_HEAD_DIM} fit")),
        }
    }

    fn fuses(&self, query: &Query) -> Result<(), String> {
        query.only_a_segment(0)
    }

    fn supports_quant_epilogue(&self, query: &Query) -> Result<(), String> {
        match self.prefill {
            true => Err("many tokens are quantised by a separate step".into()),
            false => whole_blocks(query),
        }
    }

    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        if self.prefill {
            return Err("tokens share tiles of keys".into());
        }
        let threads = threads(query).value(query.knobs);
        ReductionOrder::of_workgroup(query, "attn_decode", threads, self.subgroup)
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        match query.is_wgsl() && !self.prefill {
            true => vec![threads(query)],
            false => Vec::new(),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let [q, k, ..] = query.operands else { return Cost::default() };
        let tokens = query.upper(&q.shape[0]).unwrap_or(1) as f64;
        let (readers, keys) = readers_and_keys(query, [q, k]);
        let flops = 4.0 * keys * query.output_elements();
        // The decode kernel reads keys and values again for each token and head.
        let heads = query.upper(&q.shape[1]).unwrap_or(1) as f64;
        let layers = (tokens / f64::from(PREFILL_TOKENS)).ceil();
        let (passes, rows, efficiency) = match self.prefill {
            true => (layers, layers, 0.2),
            false => (readers, tokens, if self.subgroup { 0.25 } else { 0.2 }),
        };
        // Tokens whose tiles leave most of a large device idle count as few, too.
        let large = query.profile.kind == DeviceKind::Discrete;
        let tiles = layers * heads;
        let few = large && 2.0 * tiles <= units(query.profile);
        let few = few || tokens <= FEW_TOKENS as f64;
        let few = few || spans(query).is_some();
        let penalty = if self.prefill == few { 4.0 } else { 1.0 };
        let again = if self.prefill || !large { 1.0 } else { READ_AGAIN };
        let bytes = query.total_bytes() * (1.0 + again * (passes - 1.0).max(0.0)) * penalty;
        // Each workgroup waits for its tiles of keys one after another.
        let idle = leaves_idle(query.profile, rows * heads);
        let head = query.upper(&q.shape[2]).unwrap_or(1) as f64;
        let wait = if self.prefill && large { PREFILL_WAIT } else { TILE_WAIT };
        let waits = if idle { wait * head * keys / 256.0 } else { 0.0 };
        let dispatches = 1.0 + waits;
        Cost { bytes, flops: flops * penalty, dispatches, efficiency }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let [q, k, v] = operands(query, out)?;
        let place = Place::new(query, out)?;
        let (tokens, heads, head_dim) = (&q.shape[0], &q.shape[1], &q.shape[2]);
        let sinks = sinks(query).map(|sinks| out.contiguous(sinks)).transpose()?;
        let kernel = match (self.prefill, &place, &sinks) {
            (true, _, None) => "attn_prefill",
            (true, _, Some(_)) => "attn_prefill_sinks",
            (false, _, None) => place.kernel("attn_decode"),
            (false, Place::Past(_), Some(_)) => "attn_decode_sinks",
            (false, Place::Spans(_), Some(_)) => "attn_decode_spans_sinks",
        };
        let size = query.upper(head_dim)? as u32;
        let mut spec = AssetSpec::new(kernel);
        if query.is_wgsl() {
            spec = spec.constant("HEAD_DIM", size);
        }
        if self.subgroup {
            spec = spec.define("subgroup");
        }
        if !self.prefill && query.is_wgsl() {
            spec = spec.constant("WG", threads(query).value(query.knobs));
            if in_quads([&q, &k, &v]) {
                spec = spec.define("vec4");
            }
        }
        if k.dtype == DType::F16 {
            spec = spec.define(F16_KV);
        }
        if query.deterministic && !query.is_wgsl() {
            spec = spec.define(IN_ORDER);
        }
        let groups = match self.prefill {
            true => tokens.ceil_div(&Dim::from(PREFILL_TOKENS)),
            false => tokens.clone(),
        };
        let mut call = Call::new(spec).attention(query, [&q, &k, &v])?.place(&place)?;
        if let Op::Attention { soft_cap, .. } = query.op {
            call = call.f32("soft_cap", soft_cap.unwrap_or(0.0));
        }
        if let Some(sinks) = sinks {
            call = call.dim("sinks_offset", &sinks.layout.offset)?.bind(sinks.tensor);
        }
        out.call(call.bind(query.output.tensor).around_query(query)?.grid([
            heads.clone(),
            groups,
            Dim::new(1),
        ]))
    }
}

/// Checks that the kernels support the types of the operands.
///
/// # Errors
/// Returns the reason if they do not.
pub(in crate::engine) fn reads(query: &Query) -> Result<(), String> {
    match query.operands {
        [q, k, v, ..] if q.dtype == DType::F32 && k.dtype == v.dtype => match k.dtype {
            DType::F32 | DType::F16 => Ok(()),
            other => Err(format!("keys and values of {other}")),
        },
        _ => Err("queries that are not f32, or keys and values of two types".into()),
    }
}

/// Checks that the grid is large enough for every head along one axis, and along another for all
/// tokens at `tokens` per workgroup.
///
/// # Errors
/// Returns the reason if it is not.
pub(in crate::engine) fn groups_fit(query: &Query, tokens: u32) -> Result<(), String> {
    let [q, ..] = query.operands else { return Err(OTHER_OPERATION.into()) };
    let size = |axis: usize| query.upper(&q.shape[axis]).map_err(|e| e.to_string());
    let most = query.profile.max_workgroups_per_dim;
    let groups = [("tokens", size(0)?.div_ceil(u64::from(tokens))), ("heads", size(1)?)];
    match groups.iter().find(|(_, groups)| *groups > u64::from(most)) {
        Some((what, groups)) => {
            Err(format!("{groups} workgroups along its {what}, the device has {most}"))
        }
        None => Ok(()),
    }
}

/// Returns the queries, keys and values; those whose heads are not contiguous are copied.
pub(in crate::engine) fn operands(query: &Query, out: &mut Lowering) -> Result<[View; 3]> {
    let mut inner = |i: usize| {
        let view = &query.operands[i];
        match view.layout.strides[2].is(1) {
            true => Ok(view.clone()),
            false => out.contiguous(view),
        }
    };
    Ok([inner(0)?, inner(1)?, inner(2)?])
}

/// Returns the operand with the span of keys that each token attends to, if there is one.
pub(in crate::engine) fn spans<'a>(query: &'a Query) -> Option<&'a View> {
    query.operands.get(query.op.attention_operands(query.operands.len())[0]?)
}

/// Returns the operand with the sink of each head, if there is one.
fn sinks<'a>(query: &'a Query) -> Option<&'a View> {
    query.operands.get(query.op.attention_operands(query.operands.len())[1]?)
}

/// Checks that an operation has neither sinks nor a soft cap, for engines whose kernels have none.
///
/// # Errors
/// Returns the reason if it has.
pub(in crate::engine) fn plain_scores(query: &Query) -> Result<(), String> {
    match (sinks(query), query.op) {
        (Some(_), _) => Err("a head's sink takes part in its sum".into()),
        (None, Op::Attention { soft_cap: Some(_), .. }) => Err("scores have a soft cap".into()),
        _ => Ok(()),
    }
}

/// Returns upper bounds of the number of tokens that read a key and of keys that a token reads.
/// With spans, each token is assumed to have an equal share of the keys to itself.
pub(in crate::engine) fn readers_and_keys(query: &Query, [q, k]: [&View; 2]) -> (f64, f64) {
    let [tokens, keys] = [q, k].map(|view| query.upper(&view.shape[0]).unwrap_or(1).max(1));
    match spans(query) {
        Some(_) => (1.0, keys.div_ceil(tokens) as f64),
        None => (tokens as f64, keys as f64),
    }
}

/// Positions of the tokens among the keys.
pub(in crate::engine) enum Place {
    /// Consecutive positions, starting at this key.
    Past(Dim),
    /// Each token is at the end of its span of keys.
    Spans(Box<View>),
}

impl Place {
    pub(in crate::engine) fn new(query: &Query, out: &mut Lowering) -> Result<Place> {
        match (spans(query), query.op) {
            (Some(spans), _) => Ok(Place::Spans(Box::new(out.contiguous(spans)?))),
            (None, Op::Attention { past, .. }) => Ok(Place::Past(past.clone())),
            (None, op) => Err(Error::invalid(format!("{} is not attention", op.name()))),
        }
    }

    /// Returns the name of the variant of kernel `name` for these positions.
    pub(in crate::engine) fn kernel(&self, name: &'static str) -> &'static str {
        match (self, name) {
            (Place::Past(_), name) => name,
            (Place::Spans(_), "attn_decode") => "attn_decode_spans",
            (Place::Spans(_), "attn_subgroup") => "attn_subgroup_spans",
            (Place::Spans(_), "attn_split_kv_fused") => "attn_split_kv_fused_spans",
            (Place::Spans(_), "attn_split_kv") => "attn_split_kv_spans",
            (Place::Spans(_), _) => "attn_split_kv_reduce_spans",
        }
    }
}

impl Call {
    /// Sets the offset, token stride and head stride of the queries, keys and values, and binds
    /// them. Each view has three dimensions, and the elements of a head are contiguous.
    ///
    /// # Errors
    /// Same as [`Call::dim`].
    pub fn heads(mut self, views: [&View; 3]) -> Result<Call> {
        const NAMES: [[&str; 3]; 3] = [
            ["q_offset", "q_token_stride", "q_head_stride"],
            ["k_offset", "k_token_stride", "k_head_stride"],
            ["v_offset", "v_token_stride", "v_head_stride"],
        ];
        for ([offset, token, head], view) in NAMES.into_iter().zip(views) {
            let [token_stride, head_stride] = [0, 1].map(|axis| &view.layout.strides[axis]);
            self = self
                .dim(offset, &view.layout.offset)?
                .dim(token, token_stride)?
                .dim(head, head_stride)?
                .bind(view.tensor);
        }
        Ok(self)
    }

    /// Sets every parameter of an attention kernel except the token positions, and binds q, k and
    /// v.
    pub(in crate::engine) fn attention(self, query: &Query, [q, k, v]: [&View; 3]) -> Result<Call> {
        let Op::Attention { scale, causal, window, .. } = query.op else {
            return Err(Error::invalid(format!("{} is not attention", query.op.name())));
        };
        Ok(self
            .dim("tokens", &q.shape[0])?
            .dim("heads", &q.shape[1])?
            .dim("kv_heads", &k.shape[1])?
            .dim("head_dim", &q.shape[2])?
            .dim("kv_len", &k.shape[0])?
            .u32("window", window.unwrap_or(0))
            .u32("causal", u32::from(*causal))
            .heads([q, k, v])?
            .dim("y_offset", &query.output.layout.offset)?
            .f32("scale", *scale))
    }

    /// Sets the position of the first token, or binds the spans of the tokens.
    pub(in crate::engine) fn place(self, place: &Place) -> Result<Call> {
        match place {
            Place::Past(past) => self.dim("past", past),
            Place::Spans(spans) => {
                Ok(self.dim("spans_offset", &spans.layout.offset)?.bind(spans.tensor))
            }
        }
    }
}

/// Returns whether every head starts at a multiple of four elements and has a multiple of four
/// elements.
pub(in crate::engine) fn in_quads(views: [&View; 3]) -> bool {
    views.into_iter().all(|view| {
        let mut dims = view.layout.strides[..2].iter();
        let aligned = dims.all(|d| d.is_multiple_of(4)) && view.layout.offset.is_multiple_of(4);
        aligned && view.shape[2].is_multiple_of(4)
    })
}

/// Returns the knob for the threads of an `attn_decode` workgroup. Measured on an H200 with 4,096
/// keys: 42 us with 256 threads and `vec4` reads, 361 us with 64 threads and scalar reads. On
/// lavapipe, one token with 256 keys takes 750 us with 256 threads and 490 us with 32.
fn threads(query: &Query) -> Knob {
    let most = query.profile.max_threads_per_workgroup.min(256);
    let wanted = match query.profile.kind {
        DeviceKind::Software => SOFTWARE_THREADS.min(most),
        _ => most,
    };
    Knob::new(
        "threads",
        "threads of a workgroup, which computes one head",
        powers(32, most),
        wanted,
    )
}

/// Engine for the kernels `rope_*`.
pub(in crate::engine) struct Rope {
    id: EngineId,
}

impl Rope {
    pub(in crate::engine) fn new() -> Rope {
        Rope { id: EngineId::new("catalogue.rope") }
    }
}

impl Engine for Rope {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        match (query.op, query.operands.first()) {
            (Op::Rope { .. }, Some(x)) if x.dtype == DType::F32 => Ok(()),
            (Op::Rope { .. }, _) => Err("the operand is not f32".into()),
            _ => Err(OTHER_OPERATION.into()),
        }
    }

    fn order(&self, _query: &Query) -> Result<ReductionOrder, String> {
        Ok(ReductionOrder::exact())
    }

    fn cost(&self, query: &Query) -> Cost {
        let flops = 6.0 * query.output_elements();
        Cost { bytes: query.total_bytes(), flops, dispatches: 1.0, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let Op::Rope { pairs, rot_dim } = query.op else {
            return Err(Error::invalid(format!("{} is not rope", query.op.name())));
        };
        let x = match query.operands[0].layout.strides[2].is(1) {
            true => query.operands[0].clone(),
            false => out.contiguous(&query.operands[0])?,
        };
        let positions = out.contiguous(&query.operands[1])?;
        let freqs = out.contiguous(&query.operands[2])?;
        let (tokens, heads, head_dim) = (&x.shape[0], &x.shape[1], &x.shape[2]);
        let threads = tokens.clone() * heads.clone() * head_dim.ceil_div(&Dim::new(2));
        let grid = out.fold(threads.ceil_div(&Dim::from(POINT_GROUP)));
        out.call(
            Call::new(AssetSpec::new(match pairs {
                RopePairs::Interleaved => "rope_interleaved",
                RopePairs::Half => "rope_half",
            }))
            .dim("tokens", tokens)?
            .dim("heads", heads)?
            .dim("head_dim", head_dim)?
            .dim("rot_dim", &Dim::from(*rot_dim))?
            .dim("x_offset", &x.layout.offset)?
            .dim("x_token_stride", &x.layout.strides[0])?
            .dim("x_head_stride", &x.layout.strides[1])?
            .dim("pos_offset", &positions.layout.offset)?
            .dim("freq_offset", &freqs.layout.offset)?
            .dim("y_offset", &query.output.layout.offset)?
            .bind(x.tensor)
            .bind(positions.tensor)
            .bind(freqs.tensor)
            .bind(query.output.tensor)
            .grid(grid),
        )
    }
}

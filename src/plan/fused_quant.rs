//! Fused activation quantisation: the kernel that computes the operand of a matrix product also
//! quantises it (quant epilogue).
//!
//! Products in int8 quantise their operand, in a separate launch if that is faster. The kernel that
//! computes the operand has it in registers and can quantise it while it stores it, in the column
//! order that each consumer needs. A norm in between needs a whole row, but its factor does not
//! affect quantisation: the sums of squares of each 32 columns are stored as well, and the consumer
//! scales its result. Producers come before their consumers, so one walk over the groups suffices.

use super::builder::{NodeChoice, PlanBuilder};
use super::choose::{chosen, estimated};
use super::fusion::{self, Fused, Group};
use super::group_query::{GroupQuery, operands};
use super::memory::ALIGN;
use crate::base::{ComputeMode, DType, Dim};
use crate::engine::{
    Choice, EngineId, FusedQuant, Fusion, PreparedCodes, PreparedLayout, PreparedOperand, Query,
    SegmentBody, Tensor, TensorId, TensorRole, View,
};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::prequant::factor_words;
use crate::kernel::{CodeOrder, MAX_ORDERS, Neighbours, OperandLayout};
use crate::provider::GRANULE;

/// Lets the kernel that computes the first operand of a matrix product quantise it, if that is
/// estimated to be faster or the product's tuned engine reads f16 rows.
pub(super) fn fuse_quant(builder: &mut PlanBuilder) -> Result<()> {
    for at in 0..builder.groups.len() {
        let Some(offer) = offer(builder, at) else { continue };
        let Some((choice, layout)) = consumer(builder, at)? else { continue };
        if let Some(given) = accept(builder, &offer, layout)? {
            builder.groups[at].given = Some(given);
            if let Some(choice) = choice {
                let NodeChoice { node, label, .. } = builder.choices[at].clone();
                builder.choices[at] = chosen(node, choice, label);
            }
        }
    }
    leave_out(builder);
    Ok(())
}

/// Finds the engine for the product in group `at` if the producer of its first operand quantises
/// it, and the layout that this engine reads: the one with the best estimate if it reads int8 rows,
/// else the tuned engine that the plan has already (no choice is returned), else the one with the
/// best estimate. Returns `None` if the engine found reads neither int8 nor f16 rows.
fn consumer(builder: &PlanBuilder, at: usize) -> Result<Option<(Option<Choice>, PreparedLayout)>> {
    let own = &builder.choices[at];
    let codes = PreparedCodes { codes: TensorId(u32::MAX), at: 0, words: 0 };
    let group = Group { given: Some(PreparedOperand::Codes(codes)), ..builder.groups[at].clone() };
    let seen = GroupQuery::new(builder, &group, &own.label);
    let reads = |engine: &EngineId| {
        builder.options.registry.get(engine).and_then(|engine| engine.takes(&seen.query()))
    };
    let best = estimated(builder, &group, &own.label)?;
    let layout = reads(&best.engine);
    if own.tuned.is_some() && !matches!(layout, Some(PreparedLayout::Codes(_))) {
        let layout = own.engine.as_ref().and_then(reads);
        let halves = layout.filter(|layout| matches!(layout, PreparedLayout::Halves(_)));
        return Ok(halves.map(|layout| (None, layout)));
    }
    Ok(layout.map(|layout| (Some(best), layout)))
}

/// A producer that could quantise an operand.
struct Offer {
    /// Index of the group that computes the operand.
    from: usize,
    /// The RMS norm between producer and product: weight and epsilon.
    norm: Option<(View, f32)>,
    /// Columns per row of the operand.
    columns: u64,
    /// The operand, before the norm.
    x: View,
}

/// Finds the producer that could quantise the first operand of the product in group `at`. The
/// producer's engine is chosen already.
fn offer(builder: &PlanBuilder, at: usize) -> Option<Offer> {
    let group = &builder.groups[at];
    let node = builder.graph.node(group.root);
    let rounds = |op: &Op| matches!(op, Op::Linear { mode } if *mode != ComputeMode::F32);
    if builder.options.deterministic || !rounds(&node.op) {
        return None;
    }
    let fusion = group.fused.as_ref().map(|fused| &fused.fusion);
    if fusion.is_some_and(|fusion| fusion.prologue.is_some()) {
        return None;
    }
    let x = operands(builder, group).into_iter().next()?;
    let whole = x.is_contiguous() && x.layout.offset.is(0) && x.dtype == DType::F32;
    let columns = x.shape.dims().last()?.as_const()? as u64;
    let tensor = &builder.tensors[x.tensor.index()];
    if !whole || !columns.is_multiple_of(ComputeMode::BLOCK) {
        return None;
    }
    if tensor.role != TensorRole::Intermediate {
        return None;
    }
    let from = (0..at).rev().find(|g| writes(builder, &builder.groups[*g], x.tensor))?;
    let op = &builder.graph.node(builder.groups[from].root).op;
    let anchor = rounds(op) || matches!(op, Op::Attention { .. });
    let norm = fusion.and_then(|fusion| fusion.norm.clone());
    anchor.then_some(Offer { from, norm, columns, x })
}

/// Adds the layout that a product reads (`taken`) to the quant epilogue of its producer. Returns
/// the prepared operand, or `None` if the producer does not support it.
///
/// # Errors
/// Invalid if the number of rows is unbounded.
fn accept(
    builder: &mut PlanBuilder,
    offer: &Offer,
    taken: PreparedLayout,
) -> Result<Option<PreparedOperand>> {
    let group = &builder.groups[offer.from];
    let Some(mut fused) = with_segment(builder, group) else { return Ok(None) };
    let Some(output) = output_of(&fused.fusion, offer) else { return Ok(None) };
    let next = TensorId(builder.tensors.len() as u32);
    let known = fused.fusion.quant_epilogue.take();
    let fresh = known.is_none();
    let mut epilogue = known.unwrap_or_else(|| FusedQuant {
        output,
        norm: offer.norm.clone(),
        form: form(builder, taken),
        codes: next,
        factors: 0,
        kept: true,
        columns: offer.columns,
    });
    if epilogue.output != output || epilogue.norm != offer.norm {
        return Ok(None);
    }
    let Some((rows, ..)) = offer.x.as_rows() else { return Ok(None) };
    let rows = builder.class.upper(&rows)?;
    let Some((given, bytes)) = joined(&mut epilogue, taken, rows) else { return Ok(None) };
    let codes = given.tensor();
    let before = builder.tensors.get(codes.index()).map(|tensor| tensor.bytes);
    fused.fusion.quant_epilogue = Some(epilogue);
    let group = Group { fused: Some(fused), ..group.clone() };
    let name = match taken {
        PreparedLayout::Codes(_) => "codes",
        PreparedLayout::Halves(_) => "halves",
    };
    let name = format!("{}.{name}", builder.choices[offer.from].label);
    let tensor = Tensor { name, role: TensorRole::Intermediate, bytes };
    match fresh {
        true => builder.tensors.push(tensor),
        false => builder.tensors[codes.index()] = tensor,
    }
    if supports_quant_epilogue(builder, offer.from, &group) {
        builder.groups[offer.from] = group;
        if let PreparedOperand::Codes(PreparedCodes { words, .. }) = given {
            lengthen(builder, codes, words);
        }
        return Ok(Some(given));
    }
    match before {
        Some(bytes) if !fresh => builder.tensors[codes.index()].bytes = bytes,
        _ => builder.tensors.truncate(codes.index()),
    }
    Ok(None)
}

/// Sets the words per row for every product that reads the quantised rows in `codes`: a further
/// order makes rows longer.
fn lengthen(builder: &mut PlanBuilder, codes: TensorId, words: u64) {
    for group in &mut builder.groups {
        match &mut group.given {
            Some(PreparedOperand::Codes(other)) if other.codes == codes => other.words = words,
            _ => {}
        }
    }
}

/// Returns the initial layout of a quant epilogue whose first consumer reads `taken`.
fn form(builder: &PlanBuilder, taken: PreparedLayout) -> OperandLayout {
    let sizes = [builder.profile.subgroup_min, builder.profile.subgroup_max].map(u64::from);
    let neighbours = match sizes {
        _ if !builder.profile.has_subgroups => Neighbours::Apart,
        [ComputeMode::BLOCK, ComputeMode::BLOCK] => Neighbours::Subgroup,
        [least, _] if least >= ComputeMode::BLOCK => Neighbours::Lanes,
        _ => Neighbours::Apart,
    };
    match taken {
        PreparedLayout::Codes(_) => OperandLayout::Codes { orders: Vec::new(), neighbours },
        PreparedLayout::Halves(form) => OperandLayout::Halves(form),
    }
}

/// Adds the layout `taken` of a consumer to a quant epilogue of `rows` rows. Returns the consumer's
/// prepared operand and the size in bytes of the tensor for all consumers; `None` if the layout
/// does not fit the others or there are too many.
fn joined(
    epilogue: &mut FusedQuant,
    taken: PreparedLayout,
    rows: u64,
) -> Option<(PreparedOperand, u64)> {
    let (codes, columns) = (epilogue.codes, epilogue.columns);
    match (&mut epilogue.form, taken) {
        (OperandLayout::Codes { orders, .. }, PreparedLayout::Codes(order)) => {
            // Scales and sums are stored once per row, or per group of interleaved rows.
            if orders.first().is_some_and(|first| first.rows() != order.rows()) {
                return None;
            }
            let place = orders.iter().position(|known| *known == order).unwrap_or(orders.len());
            if place == orders.len() {
                orders.push(order);
            }
            let words_of = |orders: &[CodeOrder]| -> u64 {
                orders.iter().map(|order| order.words(columns)).sum()
            };
            let (at, words) = (words_of(&orders[..place]), words_of(orders));
            let behind = factor_words(columns, epilogue.norm.is_some());
            let rows = rows.next_multiple_of(order.rows());
            let bytes = (rows * (words + behind) * 4).next_multiple_of(GRANULE);
            let given = PreparedOperand::Codes(PreparedCodes { codes, at, words });
            (orders.len() <= MAX_ORDERS).then_some((given, bytes))
        }
        (OperandLayout::Halves(known), PreparedLayout::Halves(form)) if *known == form => {
            // Scales begin at the binding alignment.
            let halves = (rows * columns * 2).next_multiple_of(ALIGN);
            epilogue.factors = halves / 4;
            let bytes = (halves + rows * 4).next_multiple_of(GRANULE);
            Some((PreparedOperand::Halves { halves: codes, factors: epilogue.factors }, bytes))
        }
        _ => None,
    }
}

/// Returns whether the engine chosen for group `at` can execute `group`, which adds a quant
/// epilogue. If it cannot with the tuned knob values, but can without, they are dropped.
fn supports_quant_epilogue(builder: &mut PlanBuilder, at: usize, group: &Group) -> bool {
    let choice = &builder.choices[at];
    let Some(engine) = choice.engine.as_ref().and_then(|id| builder.options.registry.get(id))
    else {
        return false;
    };
    let fusion = group.fused.as_ref().map(|fused| &fused.fusion);
    let epilogue = fusion.and_then(|fusion| fusion.quant_epilogue.as_ref());
    let halves = epilogue.is_some_and(|own| matches!(own.form, OperandLayout::Halves(_)));
    let asked = |query: &Query| {
        let done = engine.applies(query).and_then(|()| engine.fuses(query));
        let done = done.and_then(|()| match halves {
            true => engine.f16_quant_epilogue(query),
            false => engine.supports_quant_epilogue(query),
        });
        done.is_ok() && query.check_knobs(&**engine).is_ok()
    };
    let seen = GroupQuery::new(builder, group, &choice.label);
    if asked(&Query { knobs: choice.knobs(builder.options), ..seen.query() }) {
        return true;
    }
    let set = builder.options.knobs.of(engine.id());
    let able = choice.tuned.is_some() && asked(&Query { knobs: set, ..seen.query() });
    if able {
        builder.choices[at].tuned = None;
    }
    able
}

/// Returns a group as it runs in isolation: without a prepared operand or quant epilogue. Returns
/// `None` if int8 rows link it to another group, since the engines of both are chosen together.
pub(super) fn alone(group: &Group) -> Option<Group> {
    let mut group = group.clone();
    if matches!(group.given.take(), Some(PreparedOperand::Codes(_))) {
        return None;
    }
    let quant_epilogue = group.fused.as_mut().and_then(|fused| fused.fusion.quant_epilogue.take());
    match quant_epilogue.map(|epilogue| epilogue.form) {
        Some(OperandLayout::Codes { .. }) => return None,
        // The fusion was only the store with the quant epilogue.
        Some(OperandLayout::Halves(_)) if group.nodes.len() == 1 => group.fused = None,
        _ => {}
    }
    Some(group)
}

/// Drops the unquantised store of an output that is read only as f16 rows.
fn leave_out(builder: &mut PlanBuilder) {
    for at in 0..builder.groups.len() {
        let epilogue = |group: &Group| {
            let fusion = &group.fused.as_ref()?.fusion;
            let epilogue = fusion.quant_epilogue.as_ref()?;
            let output = &fusion.segments.first()?.body.outputs.get(epilogue.output)?.0;
            matches!(epilogue.form, OperandLayout::Halves(_))
                .then_some((epilogue.codes, output.tensor))
        };
        let Some((codes, tensor)) = epilogue(&builder.groups[at]) else { continue };
        let outputs = builder.graph.outputs().iter();
        let mut outputs = outputs.map(|(_, id)| builder.views[id.index()].tensor);
        let kept = outputs.any(|output| output == tensor)
            || builder.groups.iter().any(|group| reads(builder, group, codes, tensor));
        let fusion = builder.groups[at].fused.as_mut().map(|fused| &mut fused.fusion);
        if let Some(epilogue) = fusion.and_then(|fusion| fusion.quant_epilogue.as_mut()) {
            epilogue.kept = kept;
        }
    }
}

/// Returns whether a group reads a tensor other than through its quantised rows.
fn reads(builder: &PlanBuilder, group: &Group, codes: TensorId, tensor: TensorId) -> bool {
    let given = group.given.is_some_and(|given| given.tensor() == codes);
    let mut own = operands(builder, group).into_iter().skip(usize::from(given));
    let own = own.any(|view| view.tensor == tensor);
    let fusion = group.fused.as_ref().is_some_and(|fused| fused.fusion.reads().contains(&tensor));
    let body = group.body.iter().flat_map(|body| &body.inputs).any(|view| view.tensor == tensor);
    own || fusion || body
}

/// Returns the fusion around a group's anchor; if it has no segment, with one that stores the
/// result. Returns `None` if it has several segments.
fn with_segment(builder: &PlanBuilder, group: &Group) -> Option<Fused> {
    let fused = group.fused.clone().unwrap_or_else(|| Fused {
        fusion: Fusion::default(),
        operands: [None, None],
        before: Vec::new(),
        after: Vec::new(),
    });
    match fused.fusion.segments.len() {
        0 => {
            let segments = vec![fusion::stored(builder, group.root)?];
            let fusion = Fusion { segments, ..fused.fusion };
            Some(Fused { fusion, ..fused })
        }
        1 => Some(fused),
        _ => None,
    }
}

/// Returns which output of the fusion's only segment is the offered operand, if evaluations follow
/// the order of its columns.
fn output_of(fusion: &Fusion, offer: &Offer) -> Option<usize> {
    let [segment] = &fusion.segments[..] else { return None };
    let outputs = &segment.body.outputs;
    let output = outputs.iter().position(|(view, _)| view.tensor == offer.x.tensor)?;
    let view = &outputs[output].0;
    let strides = &segment.strides[segment.body.inputs.len() + output];
    let whole = view.is_contiguous() && view.layout.offset.is(0) && view.dtype == DType::F32;
    let same = view.shape.elements() == offer.x.shape.elements();
    (whole && same && in_columns(segment, strides, offer)).then_some(output)
}

/// Returns whether the evaluations of a product's segment follow the columns of its output; other
/// anchors have no sizes, and their contiguous output is in evaluation order.
fn in_columns(segment: &SegmentBody, strides: &[Dim], offer: &Offer) -> bool {
    let [s0, s1] = &segment.sizes;
    let one = Dim::new(1);
    if *s0 == one && *s1 == one && offer.columns > 1 {
        return true;
    }
    let columns = Dim::from(offer.columns);
    let [row, first, second] = strides else { return false };
    let rows = row.is(0) || *row == columns;
    let along = (second.is(1) || *s1 == one) && (*first == *s1 || *s0 == one);
    rows && along && s0.clone() * s1.clone() == columns
}

/// Returns whether a group writes to a tensor.
fn writes(builder: &PlanBuilder, group: &Group, tensor: TensorId) -> bool {
    let fused = group.fused.as_ref().map(|fused| fused.fusion.writes());
    let stored = fused.filter(|writes| !writes.is_empty());
    let body = group.body.as_ref().map(|body| body.writes());
    match (stored, body) {
        (Some(writes), _) | (None, Some(writes)) => writes.contains(&tensor),
        (None, None) => group.nodes.iter().any(|n| builder.views[n.index()].tensor == tensor),
    }
}

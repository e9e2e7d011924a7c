//! What a product or an attention makes, handed on rounded to the products that follow.
//!
//! Products of 8-bit numbers round their operand, with a step of its own where that pays. The kernel that makes the
//! operand has it at hand: as it stores, it rounds as well, in the order in which each reader's units meet columns. A norm in
//! between needs a whole row, but rounding does not see its factor: squares of each 32 columns go along, and the reader
//! scales what it makes. `choose` asks here at each product, when what comes before has its engine already.

use super::choose::{operands, query};
use super::draft::Draft;
use super::group::{self, Fused, Group};
use super::memory::ALIGN;
use crate::base::{ComputeMode, DType, Dim};
use crate::engine::{
    Around, Given, GivenCodes, Handing, Query, SegmentBody, Taken, Tensor, TensorId, TensorRole,
    View,
};
use crate::error::Result;
use crate::ir::Op;
use crate::kernel::codes::factor_words;
use crate::kernel::{CodeOrder, HandForm, MAX_ORDERS, Neighbours};
use crate::provider::GRANULE;

/// Who could hand an operand on.
pub(super) struct Offer {
    /// The group that makes it.
    from: usize,
    /// The norm between: its weight and epsilon.
    norm: Option<(View, f32)>,
    /// Columns of a row.
    columns: u64,
    /// The operand.
    x: View,
}

/// Who could hand on the first operand of a group's product: something whose engine is chosen already.
pub(super) fn offer(draft: &Draft, at: usize) -> Option<Offer> {
    let group = &draft.groups[at];
    let node = draft.graph.node(group.root);
    let rounds = |op: &Op| matches!(op, Op::Linear { mode } if *mode != ComputeMode::F32);
    if draft.options.deterministic || !rounds(&node.op) {
        return None;
    }
    let around = group.fused.as_ref().map(|fused| &fused.around);
    if around.is_some_and(|around| around.prologue.is_some()) {
        return None;
    }
    let x = operands(draft, group).into_iter().next()?;
    let whole = x.is_contiguous() && x.layout.offset.is(0) && x.dtype == DType::F32;
    let columns = x.shape.dims().last()?.as_const()? as u64;
    let tensor = &draft.tensors[x.tensor.index()];
    if !whole || !columns.is_multiple_of(ComputeMode::BLOCK) {
        return None;
    }
    if tensor.role != TensorRole::Intermediate {
        return None;
    }
    let from = (0..at).rev().find(|g| writes(draft, &draft.groups[*g], x.tensor))?;
    let op = &draft.graph.node(draft.groups[from].root).op;
    let anchor = rounds(op) || matches!(op, Op::Attention { .. });
    let norm = around.and_then(|around| around.norm.clone());
    anchor.then_some(Offer { from, norm, columns, x })
}

/// Puts what a product takes on what it is offered by; what it is given, where that works.
///
/// # Errors
/// Invalid, when a size does not fit.
pub(super) fn accept(draft: &mut Draft, offer: &Offer, taken: Taken) -> Result<Option<Given>> {
    let group = &draft.groups[offer.from];
    let Some(mut fused) = with_segment(draft, group) else { return Ok(None) };
    let Some(output) = output_of(&fused.around, offer) else { return Ok(None) };
    let next = TensorId(draft.tensors.len() as u32);
    let known = fused.around.hand_on.take();
    let fresh = known.is_none();
    let mut handing = known.unwrap_or_else(|| Handing {
        output,
        norm: offer.norm.clone(),
        form: form(draft, taken),
        codes: next,
        factors: 0,
        kept: true,
        columns: offer.columns,
    });
    if handing.output != output || handing.norm != offer.norm {
        return Ok(None);
    }
    let Some((rows, ..)) = offer.x.as_rows() else { return Ok(None) };
    let rows = draft.class.upper(&rows)?;
    let Some((given, bytes)) = joined(&mut handing, taken, rows) else { return Ok(None) };
    let codes = given.tensor();
    let before = draft.tensors.get(codes.index()).map(|tensor| tensor.bytes);
    fused.around.hand_on = Some(handing);
    let group = Group { fused: Some(fused), ..group.clone() };
    let name = match taken {
        Taken::Codes(_) => "codes",
        Taken::Halves(_) => "halves",
    };
    let name = format!("{}.{name}", draft.choices[offer.from].label);
    let tensor = Tensor { name, role: TensorRole::Intermediate, bytes };
    match fresh {
        true => draft.tensors.push(tensor),
        false => draft.tensors[codes.index()] = tensor,
    }
    if hands_on(draft, offer.from, &group) {
        draft.groups[offer.from] = group;
        if let Given::Codes(GivenCodes { words, .. }) = given {
            lengthen(draft, codes, words);
        }
        return Ok(Some(given));
    }
    match before {
        Some(bytes) if !fresh => draft.tensors[codes.index()].bytes = bytes,
        _ => draft.tensors.truncate(codes.index()),
    }
    Ok(None)
}

/// Whoever takes the other order finds its codes in rows of another length.
fn lengthen(draft: &mut Draft, codes: TensorId, words: u64) {
    for group in &mut draft.groups {
        match &mut group.given {
            Some(Given::Codes(other)) if other.codes == codes => other.words = words,
            _ => {}
        }
    }
}

/// What a product is the first to take.
fn form(draft: &Draft, taken: Taken) -> HandForm {
    let sizes = [draft.profile.subgroup_min, draft.profile.subgroup_max].map(u64::from);
    let neighbours = match sizes {
        _ if !draft.profile.has_subgroups => Neighbours::Apart,
        [ComputeMode::BLOCK, ComputeMode::BLOCK] => Neighbours::Subgroup,
        [least, _] if least >= ComputeMode::BLOCK => Neighbours::Lanes,
        _ => Neighbours::Apart,
    };
    match taken {
        Taken::Codes(_) => HandForm::Codes { orders: Vec::new(), neighbours },
        Taken::Halves(form) => HandForm::Halves(form),
    }
}

/// What one more product is given of what is handed on for so many rows, and the bytes of all; `None` where others take
/// it in too many ways already.
fn joined(handing: &mut Handing, taken: Taken, rows: u64) -> Option<(Given, u64)> {
    let (codes, columns) = (handing.codes, handing.columns);
    match (&mut handing.form, taken) {
        (HandForm::Codes { orders, .. }, Taken::Codes(order)) => {
            // What goes along with the codes is there once, of a row or of rows that lie together.
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
            let behind = factor_words(columns, handing.norm.is_some());
            let rows = rows.next_multiple_of(order.rows());
            let bytes = (rows * (words + behind) * 4).next_multiple_of(GRANULE);
            let given = Given::Codes(GivenCodes { codes, at, words });
            (orders.len() <= MAX_ORDERS).then_some((given, bytes))
        }
        (HandForm::Halves(known), Taken::Halves(form)) if *known == form => {
            // Factors begin where a binding may.
            let halves = (rows * columns * 2).next_multiple_of(ALIGN);
            handing.factors = halves / 4;
            let bytes = (halves + rows * 4).next_multiple_of(GRANULE);
            Some((Given::Halves { halves: codes, factors: handing.factors }, bytes))
        }
        _ => None,
    }
}

/// Whether the engine that a group has does that as well; knobs as they were measured are given up for it.
fn hands_on(draft: &mut Draft, at: usize, group: &Group) -> bool {
    let choice = &draft.choices[at];
    let Some(engine) = choice.engine.as_ref().and_then(|id| draft.options.registry.get(id)) else {
        return false;
    };
    let operands = operands(draft, group);
    let around = group.fused.as_ref().map(|fused| &fused.around);
    let hand = around.and_then(|around| around.hand_on.as_ref());
    let halves = hand.is_some_and(|hand| matches!(hand.form, HandForm::Halves(_)));
    let asked = |query: &Query| {
        let done = engine.applies(query).and_then(|()| engine.fuses(query));
        let done = done.and_then(|()| match halves {
            true => engine.hands_halves_on(query),
            false => engine.hands_on(query),
        });
        done.is_ok() && query.check_knobs(&**engine).is_ok()
    };
    let query = query(draft, group, &choice.label, &operands);
    if asked(&Query { knobs: choice.knobs(draft.options), ..query }) {
        return true;
    }
    let set = draft.options.knobs.of(engine.id());
    let able = choice.tuned.is_some() && asked(&Query { knobs: set, ..query });
    if able {
        draft.choices[at].tuned = None;
    }
    able
}

/// A group as it runs without others: one that hands halves on, or is given them, does all itself; with codes it is
/// part of two, for which engines are chosen together.
pub(super) fn alone(group: &Group) -> Option<Group> {
    let mut group = group.clone();
    if matches!(group.given.take(), Some(Given::Codes(_))) {
        return None;
    }
    let hand_on = group.fused.as_mut().and_then(|fused| fused.around.hand_on.take());
    match hand_on.map(|hand| hand.form) {
        Some(HandForm::Codes { .. }) => return None,
        // There was nothing but the store that hands on.
        Some(HandForm::Halves(_)) if group.nodes.len() == 1 => group.fused = None,
        _ => {}
    }
    Some(group)
}

/// Rows that none but those that take their halves read are not stored themselves.
pub(super) fn leave_out(draft: &mut Draft) {
    for at in 0..draft.groups.len() {
        let hand = |group: &Group| {
            let around = &group.fused.as_ref()?.around;
            let hand = around.hand_on.as_ref()?;
            let output = &around.segments.first()?.body.outputs.get(hand.output)?.0;
            matches!(hand.form, HandForm::Halves(_)).then_some((hand.codes, output.tensor))
        };
        let Some((codes, tensor)) = hand(&draft.groups[at]) else { continue };
        let outputs = draft.graph.outputs().iter();
        let mut outputs = outputs.map(|(_, id)| draft.views[id.index()].tensor);
        let kept = outputs.any(|output| output == tensor)
            || draft.groups.iter().any(|group| reads(draft, group, codes, tensor));
        let around = draft.groups[at].fused.as_mut().map(|fused| &mut fused.around);
        if let Some(hand) = around.and_then(|around| around.hand_on.as_mut()) {
            hand.kept = kept;
        }
    }
}

/// Whether a group reads a tensor, other than as the codes or halves that it is given of it.
fn reads(draft: &Draft, group: &Group, codes: TensorId, tensor: TensorId) -> bool {
    let given = group.given.is_some_and(|given| given.tensor() == codes);
    let mut own = operands(draft, group).into_iter().skip(usize::from(given));
    let own = own.any(|view| view.tensor == tensor);
    let around = group.fused.as_ref().is_some_and(|fused| fused.around.reads().contains(&tensor));
    let body = group.body.iter().flat_map(|body| &body.inputs).any(|view| view.tensor == tensor);
    own || around || body
}

/// What is fused around a group's anchor, with a segment that stores where there is none.
fn with_segment(draft: &Draft, group: &Group) -> Option<Fused> {
    let fused = group.fused.clone().unwrap_or_else(|| Fused {
        around: Around::default(),
        operands: [None, None],
        before: Vec::new(),
        after: Vec::new(),
    });
    match fused.around.segments.len() {
        0 => {
            let segments = vec![group::stored(draft, group.root)?];
            let around = Around { segments, ..fused.around };
            Some(Fused { around, ..fused })
        }
        1 => Some(fused),
        _ => None,
    }
}

/// Which output of the only segment is the operand, evaluation by evaluation.
fn output_of(around: &Around, offer: &Offer) -> Option<usize> {
    let [segment] = &around.segments[..] else { return None };
    let outputs = &segment.body.outputs;
    let output = outputs.iter().position(|(view, _)| view.tensor == offer.x.tensor)?;
    let view = &outputs[output].0;
    let strides = &segment.strides[segment.body.inputs.len() + output];
    let whole = view.is_contiguous() && view.layout.offset.is(0) && view.dtype == DType::F32;
    let same = view.shape.elements() == offer.x.shape.elements();
    (whole && same && in_columns(segment, strides, offer)).then_some(output)
}

/// Whether evaluations of a segment of a product go through the columns of its output; of others it has no sizes, and its
/// output without gaps is in their order.
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

/// Whether a group writes to a tensor.
fn writes(draft: &Draft, group: &Group, tensor: TensorId) -> bool {
    let fused = group.fused.as_ref().map(|fused| fused.around.writes());
    let stored = fused.filter(|writes| !writes.is_empty());
    let body = group.body.as_ref().map(|body| body.writes());
    match (stored, body) {
        (Some(writes), _) | (None, Some(writes)) => writes.contains(&tensor),
        (None, None) => group.nodes.iter().any(|n| draft.views[n.index()].tensor == tensor),
    }
}

//! What is fused around an anchor, on views of memory, and its printing as an attachment.

use smallvec::SmallVec;

use super::body::{Body, Merged};
use super::lowering::{TensorId, View};
use crate::base::Dim;
use crate::error::Result;
use crate::kernel::{Attachment, CodeOrder, FusedExpr, HalvesForm, HandForm, HandOn, Segment};
use crate::provider::Word;

/// Work fused around an anchor.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Around {
    /// The rows of the first operand are normalised by RMS: weight `[k]` and epsilon.
    pub norm: Option<(View, f32)>,
    /// Applied to each element of the first operand, over [row, column]; `Anchor(0)` is the
    /// element, the last value takes its place. Without outputs.
    pub prologue: Option<Body>,
    /// Applied to what the anchor makes, in the place of its output; none: it is stored.
    pub segments: Vec<SegmentBody>,
    /// What the only segment stores is rounded for the products that follow, as `kernel::attach` says.
    pub hand_on: Option<Handing>,
}

/// What a kernel hands on to products that follow.
#[derive(Clone, Debug, PartialEq)]
pub struct Handing {
    /// The output of the segment: rows of as many columns, without gaps.
    pub output: usize,
    /// The norm in front of those products: its weight and epsilon.
    pub norm: Option<(View, f32)>,
    /// What they read.
    pub form: HandForm,
    /// Where the words go.
    pub codes: TensorId,
    /// Words before the factors of halves.
    pub factors: u64,
    /// Whether others read the output itself.
    pub kept: bool,
    /// Columns of a row, a multiple of [`crate::base::ComputeMode::BLOCK`].
    pub columns: u64,
}

/// Rows of x that what comes before a product has rounded for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Given {
    /// Rows of codes.
    Codes(GivenCodes),
    /// Halves, and factors behind so many words.
    Halves {
        /// Where both lie.
        halves: TensorId,
        /// Words before the factors.
        factors: u64,
    },
}

/// Rows of codes that were handed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenCodes {
    /// The words.
    pub codes: TensorId,
    /// Words of a row before the codes in the product's order.
    pub at: u64,
    /// Words of all codes of a row.
    pub words: u64,
}

impl Given {
    /// Where it lies.
    pub fn tensor(&self) -> TensorId {
        match self {
            Given::Codes(given) => given.codes,
            Given::Halves { halves, .. } => *halves,
        }
    }
}

/// As what a product takes rows of x from what comes before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// As codes in this order.
    Codes(CodeOrder),
    /// As halves.
    Halves(HalvesForm),
}

/// Work on a part of what an anchor makes; `kernel::attach` says what the index spaces are.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentBody {
    /// The body; its own space is not used, `merged` says the three dimensions.
    pub body: Body,
    /// Strides of the operands over (i, s0, s1).
    pub strides: Vec<Vec<Dim>>,
    /// Numbers of the anchor that meet in one evaluation.
    pub anchors: u32,
    /// Of a product with a weight matrix: the row of `w` of the first anchor at (0, 0).
    pub first_row: Dim,
    /// Evaluations along s0 and s1.
    pub sizes: [Dim; 2],
    /// Rows from one evaluation to the next, along s0 and s1.
    pub steps: [Dim; 2],
    /// Rows from the first anchor to the second.
    pub distance: Dim,
}

/// An attachment with what a launch needs for it.
#[derive(Debug)]
pub struct Attached {
    /// The kernel's part.
    pub attachment: Attachment,
    /// Words after the kernel's own.
    pub words: Vec<Word>,
    /// Tensors to bind after those that the kernel reads itself.
    pub reads: SmallVec<[TensorId; 8]>,
    /// Tensors to bind in the place of its output; none: it stores as ever.
    pub writes: SmallVec<[TensorId; 8]>,
}

impl Around {
    /// Whether there is nothing.
    pub fn is_empty(&self) -> bool {
        self.norm.is_none() && self.prologue.is_none() && self.segments.is_empty()
    }

    /// Tensors that are read besides the anchor's own operands, each once.
    pub fn reads(&self) -> SmallVec<[TensorId; 8]> {
        let mut list: SmallVec<[TensorId; 8]> = SmallVec::new();
        let mut add = |tensor: TensorId| {
            if !list.contains(&tensor) {
                list.push(tensor);
            }
        };
        if let Some((weight, _)) = &self.norm {
            add(weight.tensor);
        }
        let bodies = self.prologue.iter().chain(self.segments.iter().map(|s| &s.body));
        bodies.flat_map(|body| &body.inputs).for_each(|view| add(view.tensor));
        let gain = self.hand_on.iter().filter_map(|hand| hand.norm.as_ref());
        gain.for_each(|(view, _)| add(view.tensor));
        list
    }

    /// Tensors that are written in the place of the anchor's output, each once.
    pub fn writes(&self) -> SmallVec<[TensorId; 8]> {
        let mut list: SmallVec<[TensorId; 8]> = SmallVec::new();
        for (view, _) in self.segments.iter().flat_map(|s| &s.body.outputs) {
            if !list.contains(&view.tensor) {
                list.push(view.tensor);
            }
        }
        // Behind all that segments write.
        list.extend(self.hand_on.iter().map(|hand| hand.codes));
        list
    }

    /// Operations for each element of the first operand and of the result.
    pub fn operations(&self) -> (f64, f64) {
        let before = self.prologue.as_ref().map_or(0.0, weigh);
        let norm = if self.norm.is_some() { 3.0 } else { 0.0 };
        (before + norm, self.segments.iter().map(|s| weigh(&s.body)).fold(0.0, f64::max))
    }

    /// The attachment; `linear`: the kernel is a product with a weight matrix, whose segments say
    /// which rows they take.
    ///
    /// # Errors
    /// Invalid, for a size that does not fit 32 bits.
    pub fn attach(&self, linear: bool) -> Result<Attached> {
        let (reads, writes) = (self.reads(), self.writes());
        let mut attachment = Attachment::default();
        let mut words = Vec::new();
        if let Some((weight, eps)) = &self.norm {
            let place = reads.iter().position(|t| *t == weight.tensor).unwrap_or(0);
            attachment.norm = Some(place as u32);
            words.push(Word::f32(*eps));
            words.push(Word::dim(&weight.layout.offset)?);
        }
        if let Some(body) = &self.prologue {
            let (expr, more) = body.expr(&plain(body), false, (&reads, &writes))?;
            words.extend(more);
            attachment.prologue = Some(expr);
        }
        for segment in self.segments.iter().filter(|_| linear) {
            let [size0, size1] = &segment.sizes;
            let [step0, step1] = &segment.steps;
            for dim in [&segment.first_row, size0, size1, step0, step1, &segment.distance] {
                words.push(Word::dim(dim)?);
            }
        }
        for segment in &self.segments {
            let merged = Merged { sizes: vec![Dim::new(1); 3], strides: segment.strides.clone() };
            let (body, more): (FusedExpr, _) =
                segment.body.expr(&merged, false, (&reads, &writes))?;
            words.extend(more);
            attachment.segments.push(Segment { anchors: segment.anchors, body });
        }
        if let Some(hand) = &self.hand_on {
            let place = |weight: &View| reads.iter().position(|t| *t == weight.tensor).unwrap_or(0);
            words.push(Word::dim(&Dim::from(hand.columns))?);
            words.push(match &hand.norm {
                Some((weight, _)) => Word::dim(&weight.layout.offset)?,
                None => Word::Bits(0),
            });
            if matches!(hand.form, HandForm::Halves(_)) {
                words.push(Word::f32(hand.norm.as_ref().map_or(0.0, |(_, eps)| *eps)));
                words.push(Word::dim(&Dim::from(hand.factors))?);
            }
            attachment.hand_on = Some(HandOn {
                output: hand.output as u32,
                norm: hand.norm.as_ref().map(|(weight, _)| place(weight) as u32),
                form: hand.form.clone(),
                kept: hand.kept,
            });
        }
        Ok(Attached { attachment, words, reads, writes })
    }
}

/// The dimensions of a body as they are.
fn plain(body: &Body) -> Merged {
    Merged {
        sizes: body.space.dims().to_vec(),
        strides: body.views().map(|view| view.layout.strides.to_vec()).collect(),
    }
}

/// Operations of one evaluation; functions like `exp` count for several.
fn weigh(body: &Body) -> f64 {
    use crate::kernel::Value;
    let one = |value: &Value| match value {
        Value::Unary(..) => 8.0,
        Value::Binary(..) | Value::Select(..) | Value::Cast(..) => 1.0,
        _ => 0.0,
    };
    body.values.iter().map(one).sum()
}

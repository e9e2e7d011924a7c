//! Prologue and epilogue fusion around an anchor, on views of memory, and its lowering to a kernel.

use smallvec::SmallVec;

use super::body::{Body, Merged};
use super::lowering::{TensorId, View};
use crate::base::Dim;
use crate::error::Result;
use crate::kernel::{
    CodeOrder, F16Layout, FusedExpr, KernelFusion, OperandLayout, QuantEpilogue, Segment,
};
use crate::provider::Word;

/// Work fused around an anchor (GEMM, convolution or attention).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fusion {
    /// Prologue: RMS norm of the rows of the first operand, with weight `[k]` and epsilon.
    pub norm: Option<(View, f32)>,
    /// Prologue: applied to each element of the first operand, over [row, column]. `Anchor(0)` is
    /// the element, the last value replaces it. Without outputs.
    pub prologue: Option<Body>,
    /// Epilogue segments, which replace the anchor's own output; if empty, the result is stored.
    pub segments: Vec<SegmentBody>,
    /// Fused quantisation of the only segment's output for the products that follow
    /// (`kernel::fusion`).
    pub quant_epilogue: Option<FusedQuant>,
}

/// Fused activation quantisation: the quantised rows that a kernel writes for later products.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedQuant {
    /// Index of the quantised output of the segment: contiguous rows of `columns`.
    pub output: usize,
    /// The norm in front of those products: weight and epsilon.
    pub norm: Option<(View, f32)>,
    /// The layout that they read.
    pub form: OperandLayout,
    /// Destination of the words.
    pub codes: TensorId,
    /// Words before the scales of f16 rows.
    pub factors: u64,
    /// Whether other nodes read the unquantised output.
    pub kept: bool,
    /// Columns of a row, a multiple of [`crate::base::ComputeMode::BLOCK`].
    pub columns: u64,
}

/// Rows of x that an earlier kernel has quantised for a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedOperand {
    /// int8 codes.
    Codes(PreparedCodes),
    /// f16 rows, with scales after `factors` words.
    Halves {
        /// Tensor that holds both.
        halves: TensorId,
        /// Words before the scales.
        factors: u64,
    },
}

/// Rows of int8 codes from a quant epilogue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedCodes {
    /// The words.
    pub codes: TensorId,
    /// Words of a row before the codes in the product's order.
    pub at: u64,
    /// Words of the codes of a row, summed over all orders.
    pub words: u64,
}

impl PreparedOperand {
    /// The tensor that holds it.
    pub fn tensor(&self) -> TensorId {
        match self {
            PreparedOperand::Codes(given) => given.codes,
            PreparedOperand::Halves { halves, .. } => *halves,
        }
    }
}

/// Layout in which a product reads pre-quantised activations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedLayout {
    /// int8 codes in this order.
    Codes(CodeOrder),
    /// f16 rows.
    Halves(F16Layout),
}

/// Epilogue on a part of an anchor's result; `kernel::fusion` defines the index spaces.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentBody {
    /// The body; its own space is unused, since the index space is (i, s0, s1).
    pub body: Body,
    /// Strides of the operands over (i, s0, s1).
    pub strides: Vec<Vec<Dim>>,
    /// Results of the anchor that meet in one evaluation.
    pub anchors: u32,
    /// For a product with a weight matrix: the row of `w` of the first anchor at (0, 0).
    pub first_row: Dim,
    /// Evaluations along s0 and s1.
    pub sizes: [Dim; 2],
    /// Rows from one evaluation to the next, along s0 and s1.
    pub steps: [Dim; 2],
    /// Rows from the first anchor to the second.
    pub distance: Dim,
}

/// The fusion as a kernel attachment, with its launch parameters.
#[derive(Debug)]
pub struct LoweredFusion {
    /// The kernel's part.
    pub attachment: KernelFusion,
    /// Words after the kernel's own parameters.
    pub words: Vec<Word>,
    /// Tensors to bind after the kernel's own inputs.
    pub reads: SmallVec<[TensorId; 8]>,
    /// Tensors to bind instead of the kernel's output; if empty, the kernel stores its own.
    pub writes: SmallVec<[TensorId; 8]>,
}

impl Fusion {
    /// Whether nothing is fused.
    pub fn is_empty(&self) -> bool {
        self.norm.is_none() && self.prologue.is_none() && self.segments.is_empty()
    }

    /// Tensors that are read besides the anchor's own operands, without duplicates.
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
        let gain = self.quant_epilogue.iter().filter_map(|hand| hand.norm.as_ref());
        gain.for_each(|(view, _)| add(view.tensor));
        list
    }

    /// Tensors that are written instead of the anchor's output, without duplicates.
    pub fn writes(&self) -> SmallVec<[TensorId; 8]> {
        let mut list: SmallVec<[TensorId; 8]> = SmallVec::new();
        for (view, _) in self.segments.iter().flat_map(|s| &s.body.outputs) {
            if !list.contains(&view.tensor) {
                list.push(view.tensor);
            }
        }
        // After all outputs of the segments.
        list.extend(self.quant_epilogue.iter().map(|hand| hand.codes));
        list
    }

    /// Operations per element of the first operand and of the result.
    pub fn operations(&self) -> (f64, f64) {
        let before = self.prologue.as_ref().map_or(0.0, weigh);
        let norm = if self.norm.is_some() { 3.0 } else { 0.0 };
        (before + norm, self.segments.iter().map(|s| weigh(&s.body)).fold(0.0, f64::max))
    }

    /// Lowers the fusion to an attachment. `linear`: the kernel is a product with a weight matrix,
    /// whose segments name their rows.
    ///
    /// # Errors
    /// Invalid, for a size that does not fit 32 bits.
    pub fn attach(&self, linear: bool) -> Result<LoweredFusion> {
        let (reads, writes) = (self.reads(), self.writes());
        let mut attachment = KernelFusion::default();
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
        if let Some(hand) = &self.quant_epilogue {
            let place = |weight: &View| reads.iter().position(|t| *t == weight.tensor).unwrap_or(0);
            words.push(Word::dim(&Dim::from(hand.columns))?);
            words.push(match &hand.norm {
                Some((weight, _)) => Word::dim(&weight.layout.offset)?,
                None => Word::Bits(0),
            });
            if matches!(hand.form, OperandLayout::Halves(_)) {
                words.push(Word::f32(hand.norm.as_ref().map_or(0.0, |(_, eps)| *eps)));
                words.push(Word::dim(&Dim::from(hand.factors))?);
            }
            attachment.quant_epilogue = Some(QuantEpilogue {
                output: hand.output as u32,
                norm: hand.norm.as_ref().map(|(weight, _)| place(weight) as u32),
                form: hand.form.clone(),
                kept: hand.kept,
            });
        }
        Ok(LoweredFusion { attachment, words, reads, writes })
    }
}

/// The dimensions of a body, unmerged.
fn plain(body: &Body) -> Merged {
    Merged {
        sizes: body.space.dims().to_vec(),
        strides: body.views().map(|view| view.layout.strides.to_vec()).collect(),
    }
}

/// Operations of one evaluation; functions like `exp` count as several.
fn weigh(body: &Body) -> f64 {
    use crate::kernel::Value;
    let one = |value: &Value| match value {
        Value::Unary(..) => 8.0,
        Value::Binary(..) | Value::Select(..) | Value::Cast(..) => 1.0,
        _ => 0.0,
    };
    body.values.iter().map(one).sum()
}

//! Prologue and epilogue fusion around an anchor, as bodies on views of memory, and its lowering to
//! what a kernel compiles and binds.

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
    /// Prologue: a body over [row, column] without outputs. `Anchor(0)` is an element of the first
    /// operand; the last value of the body replaces it.
    pub prologue: Option<Body>,
    /// Epilogue segments. Their outputs replace the output of the anchor; without segments, the
    /// anchor stores its result.
    pub segments: Vec<SegmentBody>,
    /// Fused quantisation of the output of the only segment, for the matrix products that read it
    /// (`kernel::fusion`).
    pub quant_epilogue: Option<FusedQuant>,
}

/// Fused activation quantisation: the quantised rows that a kernel writes for later matrix
/// products.
#[derive(Clone, Debug, PartialEq)]
pub struct FusedQuant {
    /// Index, among the segment's outputs, of the one that is quantised; it has contiguous rows of
    /// `columns` elements.
    pub output: usize,
    /// The RMS norm between the output and the later products: weight and epsilon.
    pub norm: Option<(View, f32)>,
    /// The layout in which the later products read the rows.
    pub form: OperandLayout,
    /// The tensor that receives the quantised rows.
    pub codes: TensorId,
    /// For f16 rows: offset of their scales in `codes`, in words.
    pub factors: u64,
    /// Whether the unquantised output is also stored, because other nodes read it.
    pub kept: bool,
    /// Columns per row; a multiple of [`crate::base::ComputeMode::BLOCK`].
    pub columns: u64,
}

/// Rows of x that an earlier kernel has quantised for a matrix product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedOperand {
    /// Rows quantised to int8.
    Codes(PreparedCodes),
    /// Rows converted to f16, followed by their scales.
    Halves {
        /// Tensor that holds the rows and the scales.
        halves: TensorId,
        /// Offset of the scales, in words.
        factors: u64,
    },
}

/// Rows that a quant epilogue has quantised to int8, in one or more orders.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PreparedCodes {
    /// Tensor that holds the rows.
    pub codes: TensorId,
    /// Word offset, within a row, of the int8 values in the order that the product reads.
    pub at: u64,
    /// Words per row of int8 values, summed over all orders; the scales follow.
    pub words: u64,
}

impl PreparedOperand {
    /// Returns the tensor that holds the operand.
    pub fn tensor(&self) -> TensorId {
        match self {
            PreparedOperand::Codes(given) => given.codes,
            PreparedOperand::Halves { halves, .. } => *halves,
        }
    }
}

/// Layout in which a matrix product reads rows of x that an earlier kernel has quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PreparedLayout {
    /// int8 values in this order.
    Codes(CodeOrder),
    /// f16 rows.
    Halves(F16Layout),
}

/// Epilogue for a part of an anchor's result; `kernel::fusion` defines the index spaces.
#[derive(Clone, Debug, PartialEq)]
pub struct SegmentBody {
    /// The body; its own space is unused, since the index space is (i, s0, s1).
    pub body: Body,
    /// Strides of the operands over (i, s0, s1).
    pub strides: Vec<Vec<Dim>>,
    /// Number of anchor results that one evaluation combines.
    pub anchors: u32,
    /// For a GEMM with a weight matrix: the row of `w` that yields the first anchor result at s0 =
    /// s1 = 0.
    pub first_row: Dim,
    /// Number of evaluations along s0 and along s1.
    pub sizes: [Dim; 2],
    /// Rows of `w` from one evaluation to the next, along s0 and along s1.
    pub steps: [Dim; 2],
    /// Rows of `w` from the first anchor result of an evaluation to the second.
    pub distance: Dim,
}

/// A fusion lowered for a kernel, with its launch parameters.
#[derive(Debug)]
pub struct LoweredFusion {
    /// The part of the fusion that is compiled into the kernel.
    pub attachment: KernelFusion,
    /// Parameter words that follow those of the kernel itself.
    pub words: Vec<Word>,
    /// Tensors to bind after the inputs of the kernel itself.
    pub reads: SmallVec<[TensorId; 8]>,
    /// Tensors to bind instead of the kernel's output; if empty, the kernel stores its own output.
    pub writes: SmallVec<[TensorId; 8]>,
}

impl Fusion {
    /// Returns whether nothing is fused.
    pub fn is_empty(&self) -> bool {
        self.norm.is_none() && self.prologue.is_none() && self.segments.is_empty()
    }

    /// Returns the tensors that are read in addition to the anchor's own operands, without
    /// duplicates.
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
        let gain = self.quant_epilogue.iter().filter_map(|epilogue| epilogue.norm.as_ref());
        gain.for_each(|(view, _)| add(view.tensor));
        list
    }

    /// Returns the tensors that are written instead of the anchor's output, without duplicates.
    pub fn writes(&self) -> SmallVec<[TensorId; 8]> {
        let mut list: SmallVec<[TensorId; 8]> = SmallVec::new();
        for (view, _) in self.segments.iter().flat_map(|s| &s.body.outputs) {
            if !list.contains(&view.tensor) {
                list.push(view.tensor);
            }
        }
        // After all outputs of the segments.
        list.extend(self.quant_epilogue.iter().map(|epilogue| epilogue.codes));
        list
    }

    /// Estimates the fused operations per element of the first operand and per element of the
    /// result.
    pub fn operations(&self) -> (f64, f64) {
        let before = self.prologue.as_ref().map_or(0.0, weigh);
        let norm = if self.norm.is_some() { 3.0 } else { 0.0 };
        (before + norm, self.segments.iter().map(|s| weigh(&s.body)).fold(0.0, f64::max))
    }

    /// Lowers the fusion for a kernel. `linear` means that the kernel is a GEMM with a weight
    /// matrix, which also gets the rows of `w` of each segment as parameters.
    ///
    /// # Errors
    /// Invalid for an offset, stride or size that does not fit in 32 bits.
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
        if let Some(epilogue) = &self.quant_epilogue {
            let place = |weight: &View| reads.iter().position(|t| *t == weight.tensor).unwrap_or(0);
            words.push(Word::dim(&Dim::from(epilogue.columns))?);
            words.push(match &epilogue.norm {
                Some((weight, _)) => Word::dim(&weight.layout.offset)?,
                None => Word::Bits(0),
            });
            if matches!(epilogue.form, OperandLayout::Halves(_)) {
                words.push(Word::f32(epilogue.norm.as_ref().map_or(0.0, |(_, eps)| *eps)));
                words.push(Word::dim(&Dim::from(epilogue.factors))?);
            }
            attachment.quant_epilogue = Some(QuantEpilogue {
                output: epilogue.output as u32,
                norm: epilogue.norm.as_ref().map(|(weight, _)| place(weight) as u32),
                form: epilogue.form.clone(),
                kept: epilogue.kept,
            });
        }
        Ok(LoweredFusion { attachment, words, reads, writes })
    }
}

/// Returns the dimensions of a body without merging any.
fn plain(body: &Body) -> Merged {
    Merged {
        sizes: body.space.dims().to_vec(),
        strides: body.views().map(|view| view.layout.strides.to_vec()).collect(),
    }
}

/// Estimates the operations of one evaluation; a function such as `exp` counts as eight.
fn weigh(body: &Body) -> f64 {
    use crate::kernel::Value;
    let one = |value: &Value| match value {
        Value::Unary(..) => 8.0,
        Value::Binary(..) | Value::Select(..) | Value::Cast(..) => 1.0,
        _ => 0.0,
    };
    body.values.iter().map(one).sum()
}

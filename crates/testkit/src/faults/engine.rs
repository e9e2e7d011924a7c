//! An engine that behaves like another, except for one fault.

use std::sync::Arc;

use smallvec::smallvec;

use super::{EXPONENT, EngineFault, NOT_A_NUMBER};
use warploom::Result;
use warploom::engine::{
    Cost, Engine, EngineId, Knob, Lowering, Notes, Query, ReductionOrder, StepBinding, View,
    WeightLayout,
};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::provider::Word;
use warploom_core::base::{Dim, Layout};

/// Kernel that changes one word: `y[at] = (y[at] & keep) ^ bits`.
const WGSL: &str = "
struct Params { at: u32, keep: u32, bits: u32, unused: u32 }
@group(0) @binding(0) var<uniform> params: Params;
@group(0) @binding(1) var<storage, read_write> y: array<u32>;
@compute @workgroup_size(1)
fn main() {
    y[params.at] = (y[params.at] & params.keep) ^ params.bits;
}
";

/// A deliberately faulty engine; its id is `faulty.` plus the id of the wrapped engine.
pub struct FaultyEngine {
    id: EngineId,
    inner: Arc<dyn Engine>,
    fault: EngineFault,
}

impl FaultyEngine {
    /// Wraps an engine with a fault. The result applies to single operations wherever the wrapped
    /// engine does, with the same knobs, reduction order and version.
    pub fn new(inner: Arc<dyn Engine>, fault: EngineFault) -> FaultyEngine {
        FaultyEngine { id: EngineId::new(format!("faulty.{}", inner.id())), inner, fault }
    }

    /// Adds a launch that changes the middle word of a result.
    fn spoil(&self, y: &View, keep: u32, bits: u32, out: &mut Lowering) -> Result<()> {
        let elements = y.shape.elements();
        let middle = y.layout.offset.clone() + elements.floor_div(&Dim::new(2));
        let per_word = Dim::from(4 / y.dtype.bytes());
        let words = [Word::dim(&middle.floor_div(&per_word))?, Word::Bits(keep), Word::Bits(bits)];
        let kernel = KernelSpec::Source(SourceSpec {
            name: "planted_fault".into(),
            wgsl: WGSL.into(),
            entry: "main".into(),
            bindings: vec![Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        let params = words.into_iter().chain([Word::Bits(0)]).collect();
        let access = Access::ReadWrite;
        let binding = StepBinding { tensor: y.tensor, offset: 0, bytes: None, access };
        // An empty result has no middle.
        let grid = [elements.minimum(&Dim::new(1)), Dim::new(1), Dim::new(1)];
        out.step(kernel, params, smallvec![binding], grid)
    }
}

impl Engine for FaultyEngine {
    fn id(&self) -> &EngineId {
        &self.id
    }

    fn version(&self) -> u32 {
        self.inner.version()
    }

    fn notes(&self, query: &Query) -> Notes {
        self.inner.notes(query)
    }

    /// Returns the wrapped engine's order: a planted fault does not depend on the number of rows.
    fn order(&self, query: &Query) -> Result<ReductionOrder, String> {
        self.inner.order(query)
    }

    fn knobs(&self, query: &Query) -> Vec<Knob> {
        self.inner.knobs(query)
    }

    fn weight_layout(&self, query: &Query) -> WeightLayout {
        self.inner.weight_layout(query)
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        self.inner.applies(query)
    }

    fn cost(&self, query: &Query) -> Cost {
        self.inner.cost(query)
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        match self.fault {
            EngineFault::WrongElement => {
                self.inner.lower(query, out)?;
                self.spoil(query.output, u32::MAX, EXPONENT, out)
            }
            EngineFault::NotANumber => {
                self.inner.lower(query, out)?;
                self.spoil(query.output, 0, NOT_A_NUMBER, out)
            }
            EngineFault::KernelLeftOut => {
                self.inner.lower(query, out)?;
                out.steps.pop();
                Ok(())
            }
            EngineFault::IgnoresLayout => {
                let plain =
                    |view: &View| View { layout: Layout::contiguous(&view.shape), ..view.clone() };
                let operands: Vec<View> = query.operands.iter().map(plain).collect();
                self.inner.lower(&Query { operands: &operands, ..*query }, out)
            }
        }
    }
}

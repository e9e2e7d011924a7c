//! An engine for the tanh approximation of GELU on contiguous `f32` tensors.

use warploom::Result;
use warploom::engine::{
    Cost, Engine, EngineId, Lowering, OTHER_OPERATION, Query, StepBinding, View,
};
use warploom::graph::{Op, UnaryOp};
use warploom::kernel::{Access, KernelSpec, SourceSpec};
use warploom::provider::Word;
use warploom::{Dim, Format};

/// Threads per workgroup; the same as in the shader.
const THREADS: i64 = 64;

/// The engine `outside.gelu`.
pub struct Gelu(EngineId);

impl Default for Gelu {
    fn default() -> Gelu {
        Gelu(EngineId::new("outside.gelu"))
    }
}

impl Engine for Gelu {
    fn id(&self) -> &EngineId {
        &self.0
    }

    fn applies(&self, query: &Query) -> Result<(), String> {
        let (Op::Unary(UnaryOp::GeluTanh), [x]) = (query.op, query.operands) else {
            return Err(OTHER_OPERATION.into());
        };
        let fits = |view: &View| view.is_contiguous() && view.format == Format::F32;
        match fits(x) && fits(query.output) {
            true => Ok(()),
            false => Err("takes f32 without gaps".into()),
        }
    }

    fn cost(&self, query: &Query) -> Cost {
        let (bytes, flops) = (query.total_bytes(), 12.0 * query.output_elements());
        Cost { bytes, flops, dispatches: 1.0, efficiency: 0.5 }
    }

    fn lower(&self, query: &Query, out: &mut Lowering) -> Result<()> {
        let (x, y) = (&query.operands[0], query.output);
        let kernel = KernelSpec::Source(SourceSpec {
            name: "outside_gelu".into(),
            wgsl: include_str!("gelu.wgsl").into(),
            entry: "gelu".into(),
            bindings: vec![Access::Read, Access::ReadWrite],
            param_words: 4,
            constants: Default::default(),
            twins: Vec::new(),
        });
        let elements = y.shape.elements();
        let params = vec![
            Word::dim(&elements)?,
            Word::dim(&x.layout.offset)?,
            Word::dim(&y.layout.offset)?,
            Word::Bits(0),
        ];
        let bindings = [(x.tensor, Access::Read), (y.tensor, Access::ReadWrite)]
            .map(|(tensor, access)| StepBinding { tensor, offset: 0, bytes: None, access });
        let groups = out.fold(elements.ceil_div(&Dim::new(THREADS)));
        out.step(kernel, params, bindings.into_iter().collect(), groups)
    }
}

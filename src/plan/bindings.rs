//! Arguments of a run, checked against the plan and resolved from names to slots.

use std::collections::{BTreeMap, BTreeSet};

use super::{Plan, SlotRole};
use crate::base::SymbolValues;
use crate::error::{Error, Result};
use crate::provider::{Args, BufferId, BufferRange};

/// Symbol values, input bytes and buffers of one run, by name.
///
/// A buffer starts at a multiple of the device's binding alignment and holds at least the bytes of
/// its slot ([`Plan::slot_bytes`]); elements are row-major without gaps. A buffer that a run writes
/// (output, state or workspace) may not be bound a second time in the run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    /// A value for every symbol of the plan.
    pub symbols: SymbolValues,
    /// Bytes of each input that is uploaded.
    pub inputs: BTreeMap<String, Vec<u8>>,
    /// Buffers of bound inputs, and of the weights and states if the instance does not own them.
    pub buffers: BTreeMap<String, BufferRange>,
    /// Buffers of bound outputs.
    pub outputs: BTreeMap<String, BufferRange>,
    /// Memory for intermediates, one buffer for each size of [`Plan::workspace`], if the instance
    /// does not own it.
    pub workspace: Vec<BufferRange>,
}

impl Bindings {
    /// Checks the bindings and converts them to the arguments of a submit. `open` lists the slots
    /// for which the caller supplies buffers.
    ///
    /// # Errors
    /// Invalid if the symbols do not fit the plan, or if an input or buffer is missing, of the
    /// wrong size, unknown or shared with one that is written; the message names it.
    pub fn resolve(mut self, plan: &Plan, open: &[u32]) -> Result<Args> {
        self.resolve_inner(plan, open).map_err(|e| e.context(format_args!("plan {}", plan.name)))
    }

    fn resolve_inner(&mut self, plan: &Plan, open: &[u32]) -> Result<Args> {
        if !plan.class.contains(&self.symbols) {
            return Err(Error::invalid(format!("is for {}, not {:?}", plan.class, self.symbols)));
        }
        let mut workspace = std::mem::take(&mut self.workspace).into_iter();
        let mut buffers = Vec::with_capacity(open.len());
        let mut read: BTreeSet<BufferId> = BTreeSet::new();
        let mut written: BTreeSet<BufferId> = BTreeSet::new();
        for slot in open {
            let (role, decl) = (&plan.slots[*slot as usize], &plan.recording.slots[*slot as usize]);
            let (found, writes) = match role {
                SlotRole::Arena(_) => (workspace.next(), true),
                SlotRole::Output(name) => (self.outputs.remove(name), true),
                SlotRole::State(name) => (self.buffers.remove(name), true),
                SlotRole::Input(name) | SlotRole::Weight(name) => {
                    (self.buffers.remove(name), false)
                }
                SlotRole::Merged(_)
                | SlotRole::Inputs
                | SlotRole::Constants(_)
                | SlotRole::Counters => (None, false),
            };
            let name = &decl.name;
            let range =
                found.ok_or_else(|| Error::invalid(format!("nothing is bound to {name:?}")))?;
            if range.bytes < decl.bytes {
                let (have, need) = (range.bytes, decl.bytes);
                return Err(Error::invalid(format!("{name:?} has {have} bytes, it needs {need}")));
            }
            let shared = written.contains(&range.buffer)
                || (writes && (read.contains(&range.buffer) || !written.insert(range.buffer)));
            if shared {
                return Err(Error::invalid(format!(
                    "{name:?} shares {:?} with another binding, and one of them is written",
                    range.buffer
                )));
            }
            if !writes {
                read.insert(range.buffer);
            }
            buffers.push((*slot, range));
        }
        let uploads = self.uploads(plan)?;
        let left = self.inputs.keys().chain(self.buffers.keys()).chain(self.outputs.keys()).next();
        match left {
            Some(name) => Err(Error::invalid(format!("{name:?} is bound and not needed"))),
            None if workspace.next().is_some() => {
                Err(Error::invalid("has more workspace than it needs"))
            }
            None => Ok(Args { symbols: std::mem::take(&mut self.symbols), uploads, buffers }),
        }
    }

    fn uploads(&mut self, plan: &Plan) -> Result<Vec<Vec<u8>>> {
        let mut uploads = Vec::with_capacity(plan.inputs.len());
        for input in &plan.inputs {
            let name = &input.name;
            let bytes = self.inputs.remove(name);
            let bytes =
                bytes.ok_or_else(|| Error::invalid(format!("nothing is bound to {name:?}")))?;
            let want = input.shape.elements().eval_size(&self.symbols)? * input.dtype.bytes();
            if bytes.len() as u64 != want {
                return Err(Error::invalid(format!(
                    "input {name:?} {}: {} bytes, not {want}",
                    input.shape,
                    bytes.len()
                )));
            }
            uploads.push(bytes);
        }
        Ok(uploads)
    }
}

impl Plan {
    /// Iterates over the names of the weights and states that the plan needs.
    pub fn resident_names(&self) -> impl Iterator<Item = &str> {
        self.slots
            .iter()
            .flat_map(|role| match role {
                SlotRole::Weight(name) | SlotRole::State(name) => std::slice::from_ref(name),
                SlotRole::Merged(names) => names,
                _ => &[],
            })
            .map(String::as_str)
    }

    /// Returns the size in bytes of each workspace buffer for intermediates, in order.
    pub fn workspace(&self) -> Vec<u64> {
        let slots = self.slots.iter().zip(&self.recording.slots);
        let arena = slots.filter(|(role, _)| matches!(role, SlotRole::Arena(_)));
        arena.map(|(_, slot)| slot.bytes).collect()
    }

    /// Returns the size in bytes of the buffer for a bound input or output, a weight or a state.
    /// Returns `None` if the plan has no such slot.
    pub fn slot_bytes(&self, role: &SlotRole) -> Option<u64> {
        let place = self.slots.iter().position(|slot| slot == role)?;
        Some(self.recording.slots[place].bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{DType, Shape, ShapeClass};
    use crate::engine::Registry;
    use crate::ir::{Graph, Op, UnaryOp};
    use crate::plan::{Bound, Options};
    use crate::provider::NullProvider;

    fn plan() -> Plan {
        let mut graph = Graph::new("g");
        let x = graph.input("x", Shape::new([4]), DType::F32);
        let s = graph.input("s", Shape::new([4]), DType::F32);
        let y = graph.add(Op::Binary(crate::ir::BinaryOp::Add), &[x, s]).unwrap();
        let z = graph.add(Op::Unary(UnaryOp::Exp), &[y]).unwrap();
        graph.output("y", y).unwrap();
        graph.output("x", z).unwrap();
        let registry = Registry::builtin();
        let mut bound = Bound::all(&graph);
        bound.inputs.remove("s");
        let options = Options { bound, ..Options::new(&registry) };
        Plan::new(&graph, &ShapeClass::new(), &NullProvider::profile(), &options).unwrap()
    }

    fn range(index: u32) -> BufferRange {
        BufferRange { buffer: BufferId { index, generation: 0 }, offset: 0, bytes: 16 }
    }

    fn bindings() -> Bindings {
        Bindings {
            inputs: [("s".into(), vec![0; 16])].into(),
            buffers: [("x".into(), range(0))].into(),
            outputs: [("y".into(), range(1)), ("x".into(), range(2))].into(),
            ..Bindings::default()
        }
    }

    /// Returns the index of every slot except that of uploads.
    fn open(plan: &Plan) -> Vec<u32> {
        let slots = plan.slots.iter().enumerate();
        slots.filter(|(_, r)| **r != SlotRole::Inputs).map(|(i, _)| i as u32).collect()
    }

    #[test]
    fn an_output_has_a_slot_and_an_input_may_have_its_name() {
        let plan = plan();
        assert_eq!(plan.slot_bytes(&SlotRole::Output("x".into())), Some(16));
        assert_eq!((plan.inputs.len(), plan.outputs.len(), plan.workspace().len()), (1, 0, 0));
        let args = bindings().resolve(&plan, &open(&plan)).unwrap();
        assert_eq!((args.uploads.len(), args.buffers.len()), (1, 3));
    }

    #[test]
    fn what_does_not_fit_is_named() {
        let plan = plan();
        let error = |change: fn(&mut Bindings)| {
            let mut bindings = bindings();
            change(&mut bindings);
            bindings.resolve(&plan, &open(&plan)).unwrap_err().to_string()
        };
        let text = error(|b| b.buffers.clear());
        assert!(text.contains("nothing is bound to \"x\""), "{text}");
        let text = error(|b| b.outputs = [("y".into(), range(0)), ("x".into(), range(2))].into());
        assert!(text.contains("shares"), "{text}");
        let text = error(|b| b.outputs.extend([("z".into(), range(7))]));
        assert!(text.contains("\"z\" is bound and not needed"), "{text}");
        let text = error(|b| b.inputs.extend([("s".into(), vec![0; 12])]));
        assert!(text.contains("12 bytes, not 16"), "{text}");
        let text =
            error(|b| b.buffers.extend([("x".into(), BufferRange { bytes: 8, ..range(0) })]));
        assert!(text.contains("has 8 bytes, it needs 16"), "{text}");
    }
}

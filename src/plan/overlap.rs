//! The pass `overlap`: marks pairs of steps that run concurrently (overlapping launches), on CUDA
//! through programmatic dependent launch (see `translate/README.md`).
//!
//! Two steps may overlap if neither writes what the other touches. The test compares the bytes of
//! whole tensors at their final locations: tensors with disjoint lifetimes share bytes, even those
//! of neighbouring steps. A pair is never extended by a third step.

use super::Plan;
use super::builder::PlanBuilder;
use crate::engine::{Step, StepBinding, Tensor};
use crate::error::{Error, Result};
use crate::kernel::{Access, KernelSpec, Specialization, catalogue};

/// The byte range of a step's tensor in its slot.
#[derive(Clone, Copy, Debug)]
struct Touched {
    slot: u32,
    start: u64,
    end: u64,
    writes: bool,
}

pub(super) fn overlap(builder: &mut PlanBuilder) -> Result<()> {
    if !builder.profile.has_launch_overlap {
        return Ok(());
    }
    let touched = builder.steps.iter().map(|step| {
        let place = |binding: &StepBinding| {
            let place = builder.places[binding.tensor.index()];
            (place.slot, place.offset)
        };
        touched(step, &builder.tensors, step.bindings.iter().map(place))
    });
    let touched: Vec<Vec<Touched>> = touched.collect();
    let may: Vec<bool> = builder.steps.iter().map(|step| may_overlap(&step.kernel)).collect();
    for second in pairs(&may, &touched) {
        mark(&mut builder.steps[second - 1], |known| known.allows_overlap = true);
        mark(&mut builder.steps[second], |known| known.overlaps_previous = true);
    }
    Ok(())
}

/// Returns whether a kernel may overlap with another: a decode kernel, which is short enough for
/// launch latency to matter and waits for the previous kernel itself.
fn may_overlap(kernel: &KernelSpec) -> bool {
    let KernelSpec::Asset(asset) = kernel else { return false };
    let settles = catalogue::find(&asset.name).is_some_and(|(entry, _)| entry.is_specialized());
    settles && !catalogue::reads_ahead(asset)
}

fn mark(step: &mut Step, set: impl FnOnce(&mut Specialization)) {
    if let KernelSpec::Asset(asset) = &mut step.kernel {
        set(asset.known.get_or_insert_default());
    }
}

/// Returns the index of the second step of each pair. Pairs are found greedily from the first step
/// on.
fn pairs(may: &[bool], touched: &[Vec<Touched>]) -> Vec<usize> {
    let mut found: Vec<usize> = Vec::new();
    for second in 1..may.len() {
        let is_taken = found.last() == Some(&(second - 1));
        let both = may[second - 1] && may[second];
        if both && !is_taken && are_apart(&touched[second - 1], &touched[second]) {
            found.push(second);
        }
    }
    found
}

/// Returns the byte ranges that a step touches; `places` yields the slot and first byte of each
/// binding's tensor.
fn touched(
    step: &Step,
    tensors: &[Tensor],
    places: impl Iterator<Item = (u32, u64)>,
) -> Vec<Touched> {
    let touched = step.bindings.iter().zip(places).map(|(binding, (slot, start))| Touched {
        slot,
        start,
        end: start.saturating_add(tensors[binding.tensor.index()].bytes),
        writes: binding.access == Access::ReadWrite,
    });
    touched.collect()
}

/// Returns whether neither step writes what the other reads or writes.
fn are_apart(first: &[Touched], second: &[Touched]) -> bool {
    let meet = |a: &Touched, b: &Touched| {
        (a.writes || b.writes) && a.slot == b.slot && a.start < b.end && b.start < a.end
    };
    !first.iter().any(|a| second.iter().any(|b| meet(a, b)))
}

impl Plan {
    /// Checks that each step marked as overlapping its predecessor may do so.
    ///
    /// # Errors
    /// Invalid, naming the step.
    pub(super) fn verify_beside(&self) -> Result<()> {
        let mut before: Option<(&Step, Vec<Touched>)> = None;
        for (i, (step, dispatch)) in self.steps.iter().zip(self.dispatches()).enumerate() {
            let places = step.bindings.iter().zip(&dispatch.bindings);
            let places = places.map(|(own, bound)| (bound.slot, bound.offset - own.offset));
            let own = touched(step, &self.tensors, places);
            let says = |step: &Step, what: fn(&Specialization) -> bool| {
                step.kernel.known().is_some_and(what)
            };
            let fault = match &before {
                _ if !says(step, |known| known.overlaps_previous) => None,
                Some((first, _)) if !says(first, |known| known.allows_overlap) => {
                    Some("does not allow it")
                }
                Some((_, first)) if !are_apart(first, &own) => Some("shares a buffer with it"),
                Some(_) => None,
                None => Some("is not there"),
            };
            if let Some(fault) = fault {
                let label = &step.label;
                return Err(Error::invalid(format!(
                    "step {i} {label:?} overlaps with the previous one, which {fault}"
                )));
            }
            before = Some((step, own));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::{ComputeMode, DType, Dim, Format, Shape, ShapeClass};
    use crate::engine::Registry;
    use crate::ir::{Graph, NodeId, Op};
    use crate::plan::Options;
    use crate::provider::{Command, DeviceProfile};

    /// Plans a graph for a device whose launches overlap.
    fn plan(graph: &Graph) -> Plan {
        plan_with(graph, true, &[])
    }

    fn plan_with(graph: &Graph, has_launch_overlap: bool, without: &[&str]) -> Plan {
        let profile = DeviceProfile::known("nvidia-h200").unwrap();
        let profile = profile.with(|p| p.has_launch_overlap = has_launch_overlap);
        let registry = Registry::builtin();
        let without = without.iter().map(ToString::to_string).collect();
        let options = Options { without, ..Options::new(&registry) };
        Plan::new(graph, &ShapeClass::new(), &profile, &options).unwrap()
    }

    /// Returns the label, `allows_overlap` and `overlaps_previous` of each step.
    fn marks(plan: &Plan) -> Vec<(&str, bool, bool)> {
        let of =
            |step: &Step, what: fn(&Specialization) -> bool| step.kernel.known().is_some_and(what);
        let mark = |step| {
            (of(step, |known| known.allows_overlap), of(step, |known| known.overlaps_previous))
        };
        let marks = plan.steps.iter().map(|step| (step, mark(step)));
        marks.map(|(step, (followed, beside))| (step.label.as_str(), followed, beside)).collect()
    }

    fn product(g: &mut Graph, name: &str, x: NodeId, format: Format) -> NodeId {
        let w = g.weight(&format!("{name}.w"), Shape::new([512, 512]), format);
        let y = g.add(Op::Linear { mode: ComputeMode::F32 }, &[x, w]).unwrap();
        g.label(y, name)
    }

    /// Builds a graph of one-row products, whose weights are not merged if their formats differ.
    fn products(of: &[(&str, Format)]) -> Graph {
        let mut g = Graph::new("products");
        let x = g.input("x", Shape::new([1, 512]), DType::F32);
        for (name, format) in of {
            let y = product(&mut g, name, x, *format);
            g.output(*name, y).unwrap();
        }
        g
    }

    #[test]
    fn two_products_of_one_operand_run_at_once_if_launches_overlap() {
        let graph = products(&[("q", Format::Q4K), ("v", Format::Q6K)]);
        let made = plan(&graph);
        let [q, v] = &marks(&made)[..] else { panic!("{:?}", marks(&made)) };
        assert_eq!(((q.1, q.2), (v.1, v.2)), ((true, false), (false, true)), "{q:?} {v:?}");
        made.verify().unwrap();
        assert_eq!(Plan::load(&made.save().unwrap()).unwrap(), made);
        for (overlap, without) in [(false, &[][..]), (true, &["overlap"])] {
            let other = plan_with(&graph, overlap, without);
            assert!(marks(&other).iter().all(|(_, followed, beside)| !followed && !beside));
            assert!(!String::from_utf8_lossy(&other.save().unwrap()).contains("allows_overlap"));
        }
    }

    #[test]
    fn no_third_joins_a_pair() {
        let formats = [Format::Q4K, Format::Q6K, Format::Q8_0, Format::Q5K, Format::Q4_0];
        let named = ["a", "b", "c", "d", "e"].into_iter().zip(formats);
        let made = plan(&products(&named.collect::<Vec<_>>()));
        let marks: Vec<(bool, bool)> = marks(&made).iter().map(|mark| (mark.1, mark.2)).collect();
        let pair = [(true, false), (false, true)];
        assert_eq!(marks, [&pair[..], &pair, &[(false, false)]].concat());
    }

    #[test]
    fn what_needs_the_one_before_waits_for_it() {
        let mut g = Graph::new("chain");
        let x = g.input("x", Shape::new([1, 512]), DType::F32);
        let a = product(&mut g, "a", x, Format::Q4K);
        let b = product(&mut g, "b", a, Format::Q6K);
        g.output("b", b).unwrap();
        let made = plan(&g);
        assert!(made.steps.len() == 2 && marks(&made).iter().all(|mark| !mark.1 && !mark.2));
    }

    #[test]
    fn reads_of_a_state_wait_for_its_writes() {
        let mut g = Graph::new("state");
        let x = g.input("x", Shape::new([1, 512]), DType::F32);
        let s = g.state("s", Shape::new([4, 512]), DType::F32);
        let a = product(&mut g, "a", x, Format::Q4K);
        let s = g.add(Op::Update { at: Dim::new(0) }, &[s, a]).unwrap();
        // A row other than the one that is written: the whole state counts.
        let part = Op::Slice { axis: 0, start: Dim::new(1), len: Dim::new(1), step: 1 };
        let row = g.add(part, &[s]).unwrap();
        let b = product(&mut g, "b", row, Format::Q6K);
        g.output("b", b).unwrap();
        let made = plan(&g);
        assert!(marks(&made).iter().all(|mark| !mark.1 && !mark.2), "{:?}", marks(&made));
    }

    #[test]
    fn bytes_decide() {
        let part = |slot, start, end, writes| Touched { slot, start, end, writes };
        let (x, y) = (part(0, 0, 512, false), part(1, 0, 512, true));
        let first = vec![x, y];
        let rows = [
            // A different buffer, or different bytes of the same one.
            (vec![x, part(2, 0, 512, true)], true),
            (vec![x, part(1, 512, 1024, true)], true),
            (vec![x, part(0, 512, 1024, true)], true),
            // It writes what the first writes, writes what it reads, or reads what it writes:
            // another tensor may share the bytes.
            (vec![x, part(1, 511, 1024, true)], false),
            (vec![part(2, 0, 512, false), part(0, 256, 300, true)], false),
            (vec![part(1, 0, 4, false), part(2, 0, 512, true)], false),
        ];
        for (second, apart) in rows {
            assert_eq!(are_apart(&first, &second), apart, "{second:?}");
            let found = pairs(&[true, true], &[first.clone(), second]);
            assert_eq!(found, if apart { vec![1] } else { vec![] });
        }
        assert!(pairs(&[false, true], &[vec![x], vec![x]]).is_empty());
        assert!(pairs(&[true, false], &[vec![x], vec![x]]).is_empty());
    }

    #[test]
    fn a_file_that_says_so_wrongly_is_refused() {
        let made = plan(&products(&[("q", Format::Q4K), ("v", Format::Q6K)]));
        let fault = |change: &dyn Fn(&mut Plan)| {
            let mut plan = made.clone();
            change(&mut plan);
            plan.recording.kernels = plan.steps.iter().map(|step| step.kernel.clone()).collect();
            plan.verify().unwrap_err().to_string()
        };
        let alone = fault(&|plan| mark(&mut plan.steps[0], |known| known.allows_overlap = false));
        assert!(alone.contains("step 1") && alone.contains("does not allow it"), "{alone}");
        let first = fault(&|plan| mark(&mut plan.steps[0], |known| known.overlaps_previous = true));
        assert!(first.contains("step 0") && first.contains("is not there"), "{first}");
        let met = fault(&|plan| {
            let mut commands = plan.recording.commands.iter_mut();
            let mut dispatch = || {
                commands.find_map(|command| match command {
                    Command::Dispatch(dispatch) => Some(dispatch),
                    _ => None,
                })
            };
            let (q, v) = (dispatch().unwrap(), dispatch().unwrap());
            let (to, from) = (v.bindings.last_mut().unwrap(), q.bindings.last().unwrap());
            (to.slot, to.offset) = (from.slot, from.offset);
        });
        assert!(met.contains("shares a buffer with it"), "{met}");
    }
}

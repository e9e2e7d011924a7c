use super::*;
use crate::base::{Dim, Format, SymbolValues};
use crate::engine::{EngineId, Registry};
use crate::ir::{BinaryOp, Op, UnaryOp};

fn devices() -> Vec<DeviceProfile> {
    ["nvidia-h200", "cpu-avx512"].map(|name| DeviceProfile::known(name).unwrap()).to_vec()
}

fn on(label: &str, slot: usize) -> (Selector, usize) {
    (Selector::Label(label.into()), slot)
}

fn partition(graph: &Graph, placement: &Placement) -> Result<PartitionedPlan> {
    let registry = Registry::builtin();
    let class = ShapeClass::exact(&SymbolValues::new());
    PartitionedPlan::new(graph, &class, &devices(), placement, &Options::new(&registry))
}

/// Builds neg -> exp -> sqrt -> tanh, each labelled by its name, and the sum of the first and last
/// results.
fn chain() -> Graph {
    let mut g = Graph::new("chain");
    let x = g.input("x", Shape::new([4, 8]), DType::F32);
    let mut of = x;
    let mut first = None;
    for op in [UnaryOp::Neg, UnaryOp::Exp, UnaryOp::Sqrt, UnaryOp::Tanh] {
        of = g.add(Op::Unary(op), &[of]).unwrap();
        g.label(of, op.name());
        first.get_or_insert(of);
    }
    let sum = g.add(Op::Binary(BinaryOp::Add), &[of, first.unwrap()]).unwrap();
    g.output("y", sum).unwrap();
    g
}

fn actions(plan: &PartitionedPlan) -> String {
    let one = |action: &Action| match *action {
        Action::Run(i) => format!("run {i} on {}", plan.segments[i].slot),
        Action::Transfer { tensor, to } => format!("{} to {to}", plan.passed[tensor].name),
    };
    plan.actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn one_slot_is_one_segment_with_the_usual_plan() {
    let registry = Registry::builtin();
    let (graph, class) = (chain(), ShapeClass::new());
    let options = Options::new(&registry);
    let plan = partition(&graph, &[]).unwrap();
    assert_eq!(actions(&plan), "run 0 on 0");
    assert!(plan.passed.is_empty() && plan.states.is_empty());
    assert_eq!(plan.segments[0].plan, Plan::new(&graph, &class, &devices()[0], &options).unwrap());
}

#[test]
fn values_of_another_device_are_copied_there_and_back() {
    let plan = partition(&chain(), &[on("exp", 1), on("sqrt", 1)]).unwrap();
    // The first result is read on both slots, and is not transferred for the second reader.
    assert_eq!(
        actions(&plan),
        "run 0 on 0, neg (neg) to 1, run 1 on 1, sqrt (sqrt) to 0, run 2 on 0"
    );
    let slots: Vec<&[usize]> = plan.passed.iter().map(|passed| &passed.slots[..]).collect();
    assert_eq!(slots, [&[0, 1][..], &[1, 0]]);
    for segment in &plan.segments {
        assert_eq!(segment.plan.steps.len(), 1, "{}", segment.plan.explain());
        assert_eq!(segment.plan.profile, devices()[segment.slot]);
    }
    let reported = plan.explain();
    for part in
        ["slot 1: cpu:0", "run segment 2 on slot 0", "at most 128 bytes", "placed by \"exp\""]
    {
        assert!(reported.contains(part), "{part}: {reported}");
    }
    assert_eq!(plan.passed_bytes(&plan.passed[0]).unwrap(), 128);
}

#[test]
fn what_the_first_device_cannot_do_goes_to_the_next_with_its_reason() {
    // A table larger than a binding at WebGPU's minimum limits: the host looks up the rows.
    let mut g = Graph::new("lookup");
    let ids = g.input("ids", Shape::new([3]), DType::I32);
    let table = g.weight("table", Shape::new([40_000, 1024]), Format::F32);
    let rows = g.add(Op::Gather { axis: 0 }, &[table, ids]).unwrap();
    g.label(rows, "embedding");
    let y = g.add(Op::Unary(UnaryOp::Silu), &[rows]).unwrap();
    g.output("y", y).unwrap();
    let names = ["browser-floor", "cpu-avx512"];
    let profiles = names.map(|name| DeviceProfile::known(name).unwrap());
    let registry = Registry::builtin();
    let class = ShapeClass::new();
    let options = Options::new(&registry);
    let alone = Plan::new(&g, &class, &profiles[0], &options).unwrap_err();
    assert!(alone.is_unsupported(), "{alone}");
    let plan = PartitionedPlan::new(&g, &class, &profiles, &[], &options).unwrap();
    assert_eq!(actions(&plan), "run 0 on 1, embedding (gather) to 0, run 1 on 0");
    let why = plan.segments[0].why.join("; ");
    assert!(why.contains("not on slot 0") && why.contains("embedding"), "{why}");
    let none = PartitionedPlan::new(&g, &class, &profiles[..1], &[], &options).unwrap_err();
    assert!(none.is_unsupported() && none.to_string().contains("embedding"), "{none}");
}

/// Builds a graph with a state of 8 rows, two updates, and reads before, between and after them.
fn cache() -> Graph {
    let mut g = Graph::new("cache");
    let x = g.input("x", Shape::new([1, 4]), DType::F32);
    let state = g.state("cache", Shape::new([8, 4]), DType::F32);
    g.label(state, "cache");
    let axes =
        |op, g: &mut Graph, x| g.add(Op::Reduce { op, axes: vec![0], keep: true }, &[x]).unwrap();
    let old = axes(crate::ir::ReduceOp::Sum, &mut g, state);
    g.label(old, "old");
    let row = g.add(Op::Unary(UnaryOp::Exp), &[x]).unwrap();
    g.label(row, "row");
    let first = g.add(Op::Update { at: Dim::new(2) }, &[state, row]).unwrap();
    let between = axes(crate::ir::ReduceOp::Max, &mut g, first);
    let far = g.add(Op::Binary(BinaryOp::Add), &[between, old]).unwrap();
    g.label(far, "far");
    let second = g.add(Op::Update { at: Dim::new(5) }, &[first, far]).unwrap();
    let part = Op::Slice { axis: 0, start: Dim::new(5), len: Dim::new(1), step: 1 };
    let part = g.add(part, &[second]).unwrap();
    let new = g.add(Op::Binary(BinaryOp::Mul), &[part, far]).unwrap();
    g.label(new, "new");
    g.output("new", new).unwrap();
    g
}

#[test]
fn a_state_stays_on_one_slot_and_is_found_there_by_later_segments() {
    let plan = partition(&cache(), &[on("row", 1), on("far", 1)]).unwrap();
    assert_eq!(plan.states, [("cache".to_string(), 0)]);
    for segment in &plan.segments {
        let has = segment.plan.resident_names().any(|name| name == "cache");
        assert!(!has || segment.slot == 0, "{}", plan.explain());
    }
    let holding = plan.segments.iter().filter(|s| s.plan.resident_names().count() > 0).count();
    assert_eq!(holding, 2, "{}", plan.explain());
    // The whole state is never passed between segments.
    assert!(plan.passed.iter().all(|p| p.shape == Shape::new([1, 4])), "{:?}", plan.passed);
    let moved = partition(&cache(), &[on("cache", 1)]).unwrap();
    assert_eq!(moved.states, [("cache".to_string(), 1)]);
}

#[test]
fn placements_that_cannot_be_are_errors() {
    let fails = |graph: &Graph, placement: &Placement, parts: &[&str]| {
        let error = partition(graph, placement).unwrap_err();
        assert!(error.is_invalid(), "{error}");
        let text = error.to_string();
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
    };
    fails(&chain(), &[on("exp", 2)], &["\"exp\"", "slot 2", "there are 2"]);
    fails(&chain(), &[on("nobody", 1)], &["\"nobody\"", "no such node"]);
    fails(&cache(), &[on("cache", 0), on("new", 1)], &["new (mul)", "slot 1", "cache", "slot 0"]);
    let registry = Registry::builtin();
    let mut options = Options::new(&registry);
    options.force.push((Selector::Node(crate::ir::NodeId(1)), EngineId::new("fused.elementwise")));
    let class = ShapeClass::new();
    let error = PartitionedPlan::new(&chain(), &class, &devices(), &[], &options).unwrap_err();
    assert!(error.to_string().contains("by label"), "{error}");
    let error = PartitionedPlan::new(&chain(), &class, &[], &[], &options).unwrap_err();
    assert!(error.is_invalid(), "{error}");
}

#[test]
fn an_engine_is_forced_in_the_segment_that_has_its_node() {
    let registry = Registry::builtin();
    let mut options = Options::new(&registry);
    options.force.push((Selector::Label("exp".into()), EngineId::new("fused.elementwise")));
    let placement = [on("exp", 1)];
    let class = ShapeClass::new();
    let plan = PartitionedPlan::new(&chain(), &class, &devices(), &placement, &options).unwrap();
    assert!(plan.segments.iter().any(|s| s.plan.choices.iter().any(|c| c.why.contains("forced"))));
}

#[test]
fn files_say_the_same_and_what_is_wrong_with_them() {
    let plan = partition(&cache(), &[on("row", 1), on("far", 1)]).unwrap();
    let bytes = plan.save().unwrap();
    assert_eq!(PartitionedPlan::load(&bytes).unwrap(), plan);
    assert!(Plan::load(&bytes).unwrap_err().is_bad_file());
    let one = plan.segments[0].plan.save().unwrap();
    assert!(PartitionedPlan::load(&one).unwrap_err().to_string().contains("magic word"));
    type Change = fn(&mut PartitionedPlan);
    let wrong: [(&str, Change); 9] = [
        ("is on slots [0, 7] of 2", |p| p.passed[0].slots = vec![0, 7]),
        ("is on slots [] of 2", |p| p.passed[0].slots.clear()),
        ("two passed tensors", |p| p.passed[0].name = p.passed[1].name.clone()),
        ("is not passed on slot", |p| p.passed[0].name = "another".into()),
        ("is not the device", |p| p.segments[0].slot ^= 1),
        ("segment 9 of", |p| p.actions[0] = Action::Run(9)),
        ("times", |p| p.actions.truncate(1)),
        ("tensor 99 is transferred", |p| {
            p.actions.push(Action::Transfer { tensor: 99, to: 0 });
        }),
        ("for {seq=1..8}", |p| {
            p.segments[1].plan.class =
                ShapeClass::new().with(crate::base::Symbol::new("seq"), 1, 8);
        }),
    ];
    for (what, change) in wrong {
        let mut bad = plan.clone();
        change(&mut bad);
        let error = bad.save().unwrap_err().to_string();
        assert!(error.contains(what), "{what}: {error}");
    }
}

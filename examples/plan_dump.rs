//! dump
fn main() {
    use warploom::llm::*;
    let model =
        Model::open(std::env::args().nth(1).unwrap(), warploom::gguf::Access::Mmap).unwrap();
    let graph = model.graph(1024, Wanted::Token).unwrap();
    let tokens: u64 = std::env::args().nth(2).unwrap().parse().unwrap();
    let low = if tokens > 1 { tokens / 2 } else { 1 };
    let class = warploom::base::ShapeClass::new().with(SEQ, low, tokens).with(PAST, 0, 1023);
    let device = warploom::provider::NullProvider::device(&Default::default());
    let registry = warploom::engine::Registry::builtin();
    let options = warploom::plan::Options::new(&registry);
    let t = std::time::Instant::now();
    let plan = warploom::plan::Plan::new(&graph, &class, device.profile(), &options).unwrap();
    println!("{:?}", t.elapsed());
    println!("{}", plan.explain());
}

//! Kernel packs: the examples run on every device, with the numbers that plain loops give.

use std::path::Path;
use std::sync::Arc;

use warploom::base::platform::block_on;
use warploom::kernel::pack::Pack;
use warploom::runtime::Runtime;
use warploom::testkit::pack::{self, Outcome};
use warploom::{Result, Tensor};

use crate::devices;

pub(crate) fn example(name: &str) -> Pack {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/packs").join(name);
    Pack::load(folder).unwrap()
}

fn on_every_device(run: impl Fn(&Arc<Runtime>) -> Result<()>) {
    for (label, runtime) in devices::every(false) {
        let runtime = Arc::new(runtime);
        run(&runtime).unwrap_or_else(|e| panic!("{label}: {e}"));
    }
}

fn near(have: &[f32], want: &[f32], limit: f32) {
    assert_eq!(have.len(), want.len());
    for (i, (have, want)) in have.iter().zip(want).enumerate() {
        let error = (have - want).abs();
        assert!(error <= limit * want.abs().max(1.0), "element {i}: {have}, not {want}");
    }
}

#[test]
fn a_histogram_counts() {
    let pack = example("histogram");
    on_every_device(|runtime| {
        for n in [1_usize, 63, 64, 1001] {
            let data: Vec<u32> =
                (0..n as u32).map(|i| i.wrapping_mul(2_654_435_761) % 300).collect();
            let mut want = vec![0_u32; 256];
            data.iter().for_each(|value| want[(*value).min(255) as usize] += 1);
            let data = Tensor::from_vec(runtime, data, [n]);
            let bins = &Tensor::custom(&pack, &[&data], &[])[0];
            assert_eq!(bins.to_vec::<u32>()?, want, "{n} numbers");
        }
        Ok(())
    });
}

#[test]
fn a_blur_takes_the_mean_of_neighbours() {
    let pack = example("blur");
    on_every_device(|runtime| {
        let (h, w) = (13_i32, 22_i32);
        let pixels: Vec<f32> = (0..h * w).map(|i| ((i * 37) % 101) as f32 / 10.0).collect();
        for radius in [0_i32, 2, 30] {
            let mut want = Vec::new();
            for (y, x) in (0..h).flat_map(|y| (0..w).map(move |x| (y, x))) {
                let inside = |v: i32, most: i32| (v - radius).max(0)..=(v + radius).min(most - 1);
                let near: Vec<f32> = inside(y, h)
                    .flat_map(|v| inside(x, w).map(move |u| (v, u)))
                    .map(|(v, u)| pixels[(v * w + u) as usize])
                    .collect();
                want.push(near.iter().sum::<f32>() / near.len() as f32);
            }
            let image = Tensor::from_vec(runtime, pixels.clone(), [h as usize, w as usize]);
            // What is made of other operations, with gaps, is read as well.
            let values = [("radius", f64::from(radius))];
            let whole = &Tensor::custom(&pack, &[&image], &values)[0];
            near(&whole.to_vec::<f32>()?, &want, 1e-5);
            let turned = &Tensor::custom(&pack, &[&image.t().t()], &values)[0];
            near(
                &(turned + 1.0).sum(..).to_vec::<f32>()?,
                &[want.iter().map(|v| v + 1.0).sum()],
                1e-5,
            );
        }
        Ok(())
    });
}

#[test]
fn bodies_draw_each_other() {
    let pack = example("nbody");
    on_every_device(|runtime| {
        let n = 70_usize;
        let before: Vec<f32> =
            (0..n * 4).map(|i| ((i * 7919) % 1000) as f32 / 500.0 - 1.0).collect();
        let (dt, softening) = (0.25_f64, 0.05_f64);
        let mut want = Vec::new();
        for me in before.chunks(4) {
            let mut pull = [0.0; 2];
            for other in before.chunks(4) {
                let away = [0, 1].map(|i| f64::from(other[i]) - f64::from(me[i]));
                let square = away[0] * away[0] + away[1] * away[1] + softening * softening;
                (0..2).for_each(|i| pull[i] += away[i] / square.powf(1.5));
            }
            let speed = [0, 1].map(|i| f64::from(me[2 + i]) + pull[i] * dt / n as f64);
            want.extend([0, 1].map(|i| (f64::from(me[i]) + speed[i] * dt) as f32));
            want.extend(speed.map(|v| v as f32));
        }
        let bodies = Tensor::from_vec(runtime, before, [n, 4]);
        let after = &Tensor::custom(&pack, &[&bodies], &[("dt", dt)])[0];
        near(&after.to_vec::<f32>()?, &want, 1e-4);
        Ok(())
    });
}

#[test]
fn a_scan_changes_a_copy_in_place() {
    let pack = example("scan");
    on_every_device(|runtime| {
        let data: Vec<f32> = (0..200).map(|i| (i % 7) as f32).collect();
        let want: Vec<f32> = data
            .iter()
            .scan(0.0, |sum, v| {
                *sum += v;
                Some(*sum)
            })
            .collect();
        let input = Tensor::from_vec(runtime, data.clone(), [200]);
        let sums = &Tensor::custom(&pack, &[&input], &[])[0];
        assert_eq!(sums.to_vec::<f32>()?, want);
        assert_eq!(input.to_vec::<f32>()?, data, "the operand stays");
        Ok(())
    });
}

#[test]
fn the_checks_of_every_example_are_right_everywhere() {
    let runtimes = devices::every(true);
    for name in ["histogram", "blur", "nbody", "scan"] {
        let pack = example(name);
        for case in pack::cases(&pack).unwrap() {
            let (row, job) = pack::in_interpreter(&pack, &case);
            assert!(matches!(row.outcome, Outcome::Right { .. }), "{name}: {row:?}");
            let job = job.unwrap();
            for (label, runtime) in &runtimes {
                let row = block_on(pack::on_device(&job, runtime));
                assert!(matches!(row.outcome, Outcome::Right { .. }), "{name} on {label}: {row:?}");
            }
        }
    }
}

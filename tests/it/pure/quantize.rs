//! Quantised models: the bytes of the reference quantisers, errors within bounds, files complete or
//! absent.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use warploom_core::base::{DType, Format};
use warploom_core::quant;
use warploom_llm::Model;
use warploom_llm::huggingface::Folder;
use warploom_llm::quantize::{QuantizeOptions, QuantizeReport, TARGETS, quantize};
use warploom_models::gguf::{Access, Gguf, Value, Writer};

use crate::gguf_files::find_model;
use crate::{Need, skip, tell};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("warploom-it-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn run(input: &Path, output: &Path, format: Format) -> warploom::Result<QuantizeReport> {
    let options = QuantizeOptions::new(format).replace(true);
    let mut last = (0, 0);
    let report = quantize(input, output, &options, &mut |done, total| {
        assert!(done >= last.0 && done <= total, "{done} of {total} after {last:?}");
        last = (done, total);
        ControlFlow::Continue(())
    })?;
    assert_eq!(last.0, last.1, "all weights are counted");
    Ok(report.expect("nobody asked to stop"))
}

/// Numbers of about a normal distribution, from a fixed seed: sums of twelve even ones.
fn normal(count: usize) -> Vec<f32> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut even = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 40) as f32 / (1u64 << 24) as f32
    };
    (0..count).map(|_| (0..12).map(|_| even()).sum::<f32>() - 6.0).collect()
}

fn rmse(format: Format, values: &[f32]) -> f64 {
    let bytes = quant::encode(format, values).expect("finite values");
    let mut back = vec![f32::NAN; values.len()];
    quant::decode(format, &bytes, &mut back).expect("own blocks");
    let square = |(a, b): (&f32, &f32)| f64::from(a - b).powi(2);
    (values.iter().zip(&back).map(square).sum::<f64>() / values.len() as f64).sqrt()
}

#[test]
fn errors_on_normal_data_are_what_the_bits_are_worth() {
    let values = normal(256 * 400);
    // With 4.5 bits a weight for both, minima and a search must be worth something.
    let (q4_k, q4_0) = (rmse(Format::Q4K, &values), rmse(Format::Q4_0, &values));
    assert!(q4_k < 0.87 * q4_0, "q4_k {q4_k}, q4_0 {q4_0}");
    let (q5_k, q5_0) = (rmse(Format::Q5K, &values), rmse(Format::Q5_0, &values));
    assert!(q5_k < 0.87 * q5_0, "q5_k {q5_k}, q5_0 {q5_0}");
    // One bit less is an error of about a half; a much larger one is a mistake of scales.
    let rows = [(Format::Q8_0, 0.012), (Format::Q5K, 0.05), (Format::Q4K, 0.1), (Format::Q2K, 0.4)];
    for (format, most) in rows {
        let error = rmse(format, &values);
        assert!(error < most && error > most / 4.0, "{format}: {error}");
    }
}

/// A file with a matrix of 256 columns, one of 96, a bias, a norm, the vocabulary's and ids.
fn mixed(path: &Path, format: Format) -> Vec<(&'static str, Vec<f32>)> {
    let tensors: [(&str, &[u64]); 5] = [
        ("token_embd.weight", &[8, 256]),
        ("blk.0.ffn_up.weight", &[520, 256]),
        ("blk.0.odd.weight", &[3, 96]),
        ("blk.0.odd.bias", &[3]),
        ("blk.0.norm.weight", &[256]),
    ];
    let mut writer = Writer::new();
    writer.key("general.architecture", Value::String("test")).unwrap();
    writer.key("general.file_type", Value::U32(0)).unwrap();
    for (name, shape) in tensors {
        writer.tensor(name, shape, format).unwrap();
    }
    writer.tensor("ids", &[2], Format::Plain(DType::I32)).unwrap();
    let mut out = writer.begin(Vec::new()).unwrap();
    let mut kept = Vec::new();
    for (name, shape) in tensors {
        let values = normal(shape.iter().product::<u64>() as usize);
        let bytes = quant::encode(format, &values).unwrap();
        let mut rounded = values;
        quant::decode(format, &bytes, &mut rounded).unwrap();
        out.write(&bytes).unwrap();
        kept.push((name, rounded));
    }
    out.write(&[1, 0, 0, 0, 2, 0, 0, 0]).unwrap();
    std::fs::write(path, out.finish().unwrap()).unwrap();
    kept
}

#[test]
fn every_target_takes_every_source() {
    let folder = folder("targets");
    let (input, output) = (folder.join("in.gguf"), folder.join("out.gguf"));
    for from in [Format::F32, Format::Plain(DType::F16), Format::Plain(DType::BF16)] {
        let kept = mixed(&input, from);
        for (target, name, file_type) in TARGETS {
            let report = run(&input, &output, target).unwrap();
            let file = Gguf::open(&output, Access::Copy).unwrap();
            assert_eq!(file.get_u32("general.file_type").unwrap(), file_type, "{name}");
            assert_eq!(file.architecture().unwrap(), "test");
            assert_eq!(file.file_bytes(), report.bytes_after);
            let ternary = matches!(target, Format::TQ1_0 | Format::TQ2_0);
            for (tensor, values) in &kept {
                let info = file.tensor(tensor).unwrap();
                let want = match *tensor {
                    "token_embd.weight" if ternary => Format::Q8_0,
                    "blk.0.odd.weight" if target.block_len() == 256 => Format::Q8_0,
                    "blk.0.odd.bias" | "blk.0.norm.weight" => Format::F32,
                    _ => target,
                };
                assert_eq!(info.format().unwrap(), want, "{name}: {tensor}");
                // Rows went through threads in slices: the bytes are those of one pass.
                let bytes = file.bytes(&info).unwrap();
                assert!(bytes == quant::encode(want, values).unwrap(), "{name}: {tensor}");
                let reported = report.tensors.iter().find(|t| t.name == *tensor).unwrap();
                let mut back = vec![0.0; values.len()];
                quant::decode(want, bytes, &mut back).unwrap();
                let far = values.iter().zip(&back).map(|(a, b)| f64::from(a - b).abs());
                let most = far.fold(0.0, f64::max);
                assert!((reported.max_error - most).abs() < 1e-6, "{name}: {tensor}: {reported:?}");
                assert!(reported.rmse <= most && (reported.rmse > 0.0) == (most > 0.0));
                assert_eq!((reported.from, reported.to), (from, want));
                let matrix = !["blk.0.odd.bias", "blk.0.norm.weight"].contains(tensor);
                assert_eq!(reported.note.is_some(), matrix && want != target, "{name}: {tensor}");
            }
            let ids = file.tensor("ids").unwrap();
            assert_eq!(file.bytes(&ids).unwrap(), [1, 0, 0, 0, 2, 0, 0, 0]);
        }
    }
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 2, "parts of files are left");
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn what_cannot_be_quantised_leaves_nothing() {
    let folder = folder("refused");
    let (input, output) = (folder.join("in.gguf"), folder.join("out.gguf"));
    mixed(&input, Format::F32);
    let target = Format::Q4_0;
    let wrong = run(&input, &output, Format::IQ4NL).unwrap_err();
    assert!(wrong.is_invalid() && wrong.to_string().contains("TQ2_0"), "{wrong}");
    let wrong = run(&folder.join("none.gguf"), &output, target).unwrap_err();
    assert!(wrong.to_string().contains("none.gguf"), "{wrong}");

    // A number outside a block's range is an error with tensor and row.
    let mut bytes = std::fs::read(&input).unwrap();
    let file = Gguf::open(&input, Access::Copy).unwrap();
    let at = file.tensor("blk.0.ffn_up.weight").unwrap().file_offset() as usize;
    bytes[at + 4 * 700..][..4].copy_from_slice(&f32::NAN.to_le_bytes());
    std::fs::write(&input, &bytes).unwrap();
    for format in [target, Format::Plain(DType::F16)] {
        let wrong = run(&input, &output, format).unwrap_err();
        let message = wrong.to_string();
        assert!(message.contains("blk.0.ffn_up.weight") && message.contains("NaN"), "{message}");
    }
    mixed(&input, Format::F32);

    // Asked to stop, and a file that is there already.
    let options = QuantizeOptions::new(target).threads(Some(1));
    let mut asked = 0;
    let stopped = quantize(&input, &output, &options, &mut |_, _| {
        asked += 1;
        if asked == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(stopped.unwrap().is_none());
    assert_eq!(std::fs::read_dir(&folder).unwrap().count(), 1, "parts of files are left");
    run(&input, &output, target).unwrap();
    let before = std::fs::read(&output).unwrap();
    let taken = quantize(&input, &output, &options, &mut |_, _| ControlFlow::Continue(()));
    assert!(taken.unwrap_err().to_string().contains("already exists"));
    let packed = run(&output, &folder.join("more.gguf"), target).unwrap_err();
    assert!(packed.is_unsupported() && packed.to_string().contains("q4_0 already"), "{packed}");
    assert_eq!(std::fs::read(&output).unwrap(), before);
    // Nor is the input lost, even on request.
    let whole = std::fs::read(&input).unwrap();
    let refused = run(&input, &input, target).unwrap_err();
    assert!(refused.is_invalid() && refused.to_string().contains("is the input"), "{refused}");
    assert_eq!(std::fs::read(&input).unwrap(), whole);
    std::fs::remove_dir_all(&folder).unwrap();
}

/// Real models: the bytes of llama.cpp's own files, and errors no larger than its quantiser's.
#[test]
fn real_models_become_what_the_reference_makes_of_them() {
    let name = |format: &str| format!("warploom-tiny-llama-{format}.gguf");
    let Some(source) = find_model(&name("F16")) else {
        return skip(Need::Models, "there is no F16 model in models/ or WARPLOOM_TEST_MODELS");
    };
    let folder = folder("real");
    let output = folder.join("out.gguf");
    let exact = Gguf::open(&source, Access::Mmap).unwrap();
    for (format, file) in [(Format::Q8_0, "Q8_0"), (Format::Q4_0, "Q4_0"), (Format::Q4K, "Q4_K_M")]
    {
        run(&source, &output, format).unwrap();
        let (ours, path) = (Gguf::open(&output, Access::Mmap).unwrap(), find_model(&name(file)));
        let theirs = Gguf::open(path.expect("models come together"), Access::Mmap).unwrap();
        let (mut same, mut errors) = (0, [0.0f64; 2]);
        for info in theirs.tensors().filter(|info| info.format().is_ok_and(|f| f == format)) {
            let mine = ours.tensor(info.name()).unwrap();
            let mut values = vec![0.0; info.elements() as usize];
            let of_exact = exact.tensor(info.name()).unwrap();
            quant::decode(of_exact.format().unwrap(), exact.bytes(&of_exact).unwrap(), &mut values)
                .unwrap();
            let pair = [ours.bytes(&mine).unwrap(), theirs.bytes(&info).unwrap()];
            same += usize::from(pair[0] == pair[1]);
            for (error, bytes) in errors.iter_mut().zip(pair) {
                let mut back = vec![0.0; values.len()];
                quant::decode(format, bytes, &mut back).unwrap();
                let squares = values.iter().zip(&back).map(|(a, b)| f64::from(a - b).powi(2));
                *error += squares.sum::<f64>();
            }
        }
        let ratio = (errors[0] / errors[1]).sqrt();
        tell(&format!("quantize: {format}: {same} tensors are equal, error {ratio:.4} of theirs"));
        match format {
            // The same search, except for fused multiply-adds of the compiler.
            Format::Q4K => assert!((0.999..1.001).contains(&ratio), "q4_k: {ratio}"),
            _ => assert!(same >= 56, "{format}: {same} tensors are equal"),
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

/// The same model as a Hugging Face folder and as a GGUF file.
#[test]
fn a_hugging_face_folder_is_the_gguf_file_that_was_made_of_it() {
    let Some(path) = find_model("warploom-tiny-llama-F16.gguf") else {
        return skip(Need::Models, "there is no F16 model in models/ or WARPLOOM_TEST_MODELS");
    };
    let theirs = Gguf::open(&path, Access::Mmap).unwrap();
    let ours = Folder::open(path.parent().unwrap()).unwrap().gguf().unwrap();
    assert_eq!(ours.tensor_count(), theirs.tensor_count());
    for info in theirs.tensors() {
        let mine = ours.tensor(info.name()).unwrap();
        assert_eq!(mine.shape(), info.shape(), "{}", info.name());
        let values = |file: &Gguf, info: &warploom_models::gguf::TensorInfo| {
            let mut values = vec![f32::NAN; info.elements() as usize];
            quant::decode(info.format().unwrap(), file.bytes(info).unwrap(), &mut values).unwrap();
            // The folder was rounded as a whole, the file keeps its norms.
            let halves = quant::encode(Format::Plain(DType::F16), &values).unwrap();
            quant::decode(Format::Plain(DType::F16), &halves, &mut values).unwrap();
            values
        };
        assert!(values(&ours, &mine) == values(&theirs, &info), "{}", info.name());
    }
    for key in ["tokens", "merges"] {
        let key = format!("tokenizer.ggml.{key}");
        assert!(ours.strings(&key).unwrap().eq(theirs.strings(&key).unwrap()), "{key}");
    }
    let types =
        |file: &Gguf| file.integers("tokenizer.ggml.token_type").unwrap().collect::<Vec<_>>();
    assert_eq!(types(&ours), types(&theirs));
    for key in ["model", "pre"] {
        let key = format!("tokenizer.ggml.{key}");
        assert_eq!(ours.get_str(&key).unwrap(), theirs.get_str(&key).unwrap());
    }
    let template = "tokenizer.chat_template";
    assert_eq!(ours.get_str(template).unwrap(), theirs.get_str(template).unwrap());
    let [ours, theirs] = [ours, theirs].map(|file| Model::from_gguf(file).unwrap());
    assert_eq!(ours.config(), theirs.config());
    assert_eq!(ours.tokenizer().bos(), theirs.tokenizer().bos());
    assert_eq!(ours.tokenizer().adds_bos(), theirs.tokenizer().adds_bos());
}

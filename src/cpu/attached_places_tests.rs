//! Attachments in place, refused, and past the ends of bindings.

use super::*;

/// A residual: `out = anchor + input`, both at these words.
fn residual(words: &[usize]) -> Given {
    let values = [Anchor(0), Input(0), Binary(BinaryOp::Add, 0, 1)];
    given(3, &[(Strided, 0, words)], &values, &[(0, 2, words)])
}

#[test]
fn a_residual_in_its_own_place_and_inputs_beside_it() {
    // One buffer: w [n, k], then h [m, n], then x [m, k]; h += x w.
    let (m, n, k) = (3, 600, 8);
    let (h, x) = (n * k, n * k + m * n);
    let data = numbers(x + m * k, 1);
    let case = Case {
        name: "matvec_f32".into(),
        params: [m, n, k, x, k, 0, 0].map(|v| v as u32).to_vec(),
        own: vec![],
        reads: vec![],
        norm: None,
        prologue: None,
        segments: vec![(1, [0, 1, n, 0, 1, 0], residual(&[h, n, 0, 1]))],
    };
    let mut want = data.clone();
    for (i, r) in (0..m * n).map(|e| (e / n, e % n)) {
        want[h + i * n + r] += (0..k).map(|c| data[r * k + c] * data[x + i * k + c]).sum::<f32>();
    }
    for device in devices() {
        let got = launch_within(&*device, &case.spec(), &case.words(), &data);
        for (i, (got, want)) in got.iter().zip(&want).enumerate() {
            assert!((got - want).abs() <= 1e-5, "element {i} is {got}, not {want}");
        }
        // Over x itself, which is read as it was.
        let mut over = case.words();
        let operands = over.len() - 8;
        (over[operands], over[operands + 4]) = (x as u32 - 4, x as u32 - 4);
        over[0] = 1;
        let (table, count) = (operands - 6, 2 * k);
        over[table + 2] = count as u32;
        let got = launch_within(&*device, &case.spec(), &over, &data);
        for r in 0..count {
            let sum: f32 = (0..k).map(|c| data[r * k + c] * data[x + c]).sum();
            let (got, want) = (got[x - 4 + r], data[x - 4 + r] + sum);
            assert!((got - want).abs() <= 1e-5, "element {r} is {got}, not {want}");
        }
    }
}

#[test]
fn what_a_kernel_does_not_take_is_refused_by_name() {
    let refuse = |name: &str, attachment: Attachment| {
        let spec = KernelSpec::Asset(AssetSpec::new(name).attach(attachment));
        let error = crate::cpu::prepare::Kernel::new(&spec).err().unwrap();
        assert!(error.is_unsupported(), "{error}");
        error.to_string()
    };
    let norm = Attachment { norm: Some(0), ..Attachment::default() };
    assert!(refuse("matmul_q4_0", norm.clone()).contains("matmul_* takes no norm"));
    let before = Attachment { prologue: Some(prologue(0, 1).body), ..Attachment::default() };
    assert!(refuse("attn_decode", before.clone()).contains("attn_decode takes no prologue"));
    assert!(refuse("softmax", before).contains("softmax takes no prologue"));
    let body = residual(&[0; 4]).body;
    let segments = |count: usize, anchors| Attachment {
        segments: vec![Segment { anchors, body: body.clone() }; count],
        ..Attachment::default()
    };
    assert!(refuse("norm_rms", segments(1, 1)).contains("norm_rms takes no segments"));
    assert!(refuse("conv2d", segments(2, 1)).contains("conv2d takes one segment"));
    assert!(refuse("attn_prefill", segments(1, 2)).contains("of one anchor"));
    let wrong = AssetSpec::new("matvec_f32").attach(segments(1, 3));
    let error = crate::cpu::prepare::Kernel::new(&KernelSpec::Asset(wrong)).err().unwrap();
    assert!(error.is_invalid(), "{error}");
}

#[test]
fn parameters_that_pass_a_binding_are_errors() {
    let linear = |name: &str| Case {
        name: name.into(),
        params: vec![1, 8, 32, 0, 32, 0, 8],
        own: vec![vec![0; 1024], vec![0; 128]],
        reads: vec![vec![0.0; 64]],
        norm: name.starts_with("matvec").then_some((0, 1e-5, 0)),
        prologue: Some(given(2, &[(Strided, 0, &[0, 0, 1])], &[Anchor(0), Input(0)], &[])),
        segments: vec![
            (2, [0, 2, 2, 2, 1, 4], rotation(&[0, 0, 0, 1], &[0, 4, 2, 1], &[4, 4, 2, 1])),
            (1, [0, 2, 4, 4, 1, 0], residual(&[8, 0, 4, 1])),
        ],
    };
    let attention = Case {
        name: "attn_decode".into(),
        params: vec![1, 2, 1, 8, 4, 3, 0, 1, 0, 16, 8, 0, 8, 8, 0, 8, 8, 0, 1],
        own: vec![vec![0; 128]; 3],
        reads: vec![vec![0.0; 64]],
        norm: None,
        prologue: None,
        segments: vec![(1, [0; 6], residual(&[0, 16, 8, 1]))],
    };
    let device = devices().remove(1);
    for case in [linear("matvec_f32"), linear("matmul_f32"), linear("matvec_q4_1"), attention] {
        let inputs: Vec<Vec<u8>> =
            case.own.iter().cloned().chain(case.reads.iter().map(|r| bytes(r))).collect();
        let (spec, words) = (case.spec(), case.words());
        let launch = |words: &[u32]| launch_many(&*device, &spec, words, &inputs, &[16]);
        launch(&words).unwrap();
        let mut errors = 0;
        for place in 0..words.len() {
            for value in [u32::MAX, 1 << 20, 0, 7] {
                let mut words = words.clone();
                words[place] = value;
                // Whatever it says, it comes back and stays inside.
                if let Err(error) = launch(&words) {
                    assert!(error.is_invalid(), "{spec} {words:?}: {error}");
                    errors += 1;
                }
            }
        }
        assert!(errors > words.len(), "{errors}");
        assert!(launch(&vec![u32::MAX; words.len()]).unwrap_err().is_invalid());
    }
}

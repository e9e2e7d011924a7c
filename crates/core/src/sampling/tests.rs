use super::philox::philox4x32;
use super::weight::{FORBIDDEN, NATURAL, ONE, bounded_scale, key, logit, weight};
use super::{Choice, NoToken, SampleParams, choose};

/// No filters, temperature 1.
const PLAIN: SampleParams =
    SampleParams { scale: NATURAL, top_k: 0, top_p: u32::MAX, min_p: 0, seed: 1, position: 0 };

fn one(logits: &[f32], draw: SampleParams) -> u32 {
    choose(logits, &draw, &mut Choice::default())
}

#[test]
fn random_words_are_the_published_ones() {
    // The known answers of Random123's `kat_vectors`.
    let rows = [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ];
    for (counter, key, want) in rows {
        assert_eq!(philox4x32(counter, key), want);
    }
}

#[test]
fn weights_are_the_exponentials_and_fall_with_the_logit() {
    let best = key(0.0).unwrap();
    let mut last = ONE;
    for i in 0..400_000 {
        let below = i as f32 * 6e-5;
        let got = weight(best, key(-below).unwrap(), NATURAL);
        let want = (-f64::from(below)).exp() * f64::from(ONE);
        // Rounding of the product, of 24 fractional bits, of the polynomial, and of the shift.
        let bound = want * 3e-6 + 6.0;
        assert!((f64::from(got) - want).abs() <= bound, "e^-{below}: {got}, want {want}");
        assert!(got <= last, "e^-{below}: {got} after {last}");
        last = got;
    }
    assert_eq!(weight(best, best, NATURAL), ONE);
    assert_eq!(weight(best, key(-23.0).unwrap(), NATURAL), 0);
    assert_eq!(weight(best, FORBIDDEN, 0.0), 0);
    let far = [f32::MAX, f32::MIN].map(|logit| key(logit).unwrap());
    assert_eq!(weight(far[0], far[1], NATURAL), 0);
    assert_eq!(weight(far[0], far[1], bounded_scale(f32::MIN_POSITIVE)), ONE);
    assert_eq!(weight(far[0], far[1], bounded_scale(f32::MAX)), 0);
    for scale in [f32::NAN, -1.0, 1e-40, 0.0] {
        assert_eq!(bounded_scale(scale), 0.0);
    }
}

#[test]
fn keys_order_logits_and_turn_back() {
    let rising = [f32::NEG_INFINITY, f32::MIN, -1.0, -1e-37, 0.0, 1e-37, 1.0, 2.0, f32::MAX];
    for pair in rising.windows(2) {
        assert!(key(pair[0]).unwrap() < key(pair[1]).unwrap(), "{pair:?}");
    }
    for value in rising {
        assert_eq!(logit(key(value).unwrap()), value);
    }
    assert_eq!(key(f32::NEG_INFINITY), Some(FORBIDDEN));
    for zero in [-0.0, 1e-40, -1e-40] {
        assert_eq!(key(zero), key(0.0));
    }
    assert_eq!((key(f32::NAN), key(-f32::NAN), key(f32::INFINITY)), (None, None, None));
}

#[test]
fn words_there_and_back() {
    let draw =
        SampleParams { scale: 2.5, top_k: 3, top_p: 4, min_p: 5, seed: 6 << 40 | 7, position: 8 };
    assert_eq!(SampleParams::from_words(draw.words()), draw);
    assert_eq!(draw.words()[4..], [7, 6 << 8, 8]);
}

#[test]
fn draws_follow_the_softmax() {
    let logits = [0.0, 1.0, -2.0, 0.5, f32::NEG_INFINITY];
    for temperature in [0.5f32, 1.0, 2.0] {
        let mut counts = [0usize; 5];
        let n = 40_000;
        for position in 0..n as u32 {
            let draw = SampleParams { scale: NATURAL / temperature, position, ..PLAIN };
            counts[one(&logits, draw) as usize] += 1;
        }
        let weights = logits.map(|l: f32| (f64::from(l) / f64::from(temperature)).exp());
        let total: f64 = weights.iter().sum();
        for (id, weight) in weights.iter().enumerate() {
            let p = weight / total;
            // Five standard deviations of a binomial distribution.
            let tolerance = 5.0 * (p * (1.0 - p) / n as f64).sqrt() + 1e-12;
            let share = counts[id] as f64 / n as f64;
            assert!((share - p).abs() <= tolerance, "T {temperature}, id {id}: {share}, want {p}");
        }
    }
}

#[test]
fn top_p_is_right_beyond_the_first_sorted_piece() {
    // 5,000 equal tokens: half of the probability covers half of the tokens, lowest ids first.
    let logits = vec![1.0; 5_000];
    let draws = (0..2_000).map(|position| SampleParams { top_p: 1 << 31, position, ..PLAIN });
    let tokens: Vec<u32> = draws.map(|draw| one(&logits, draw)).collect();
    let most = tokens.iter().max().unwrap();
    assert!((2_400..2_500).contains(most), "{most}");
}

#[test]
fn what_cannot_be_drawn_from_gives_no_token() {
    let low = f32::NEG_INFINITY;
    let long: Vec<f32> = (0..700).map(|i| if i >= 611 { f32::NAN } else { 0.5 }).collect();
    let rows: [(&[f32], NoToken); 6] = [
        (&[], NoToken::Forbidden),
        (&[low, low], NoToken::Forbidden),
        (&[0.0, f32::NAN], NoToken::NotFinite(1)),
        (&[f32::INFINITY, 0.0], NoToken::NotFinite(0)),
        (&[0.0, f32::INFINITY, f32::NAN], NoToken::NotFinite(1)),
        (&long, NoToken::NotFinite(611)),
    ];
    for (logits, why) in rows {
        for draw in [PLAIN, SampleParams { top_k: 1, ..PLAIN }] {
            assert_eq!(NoToken::check(one(logits, draw)), Err(why), "{logits:?}");
        }
    }
    assert_eq!(one(&[low, -3e38], PLAIN), 1);
}

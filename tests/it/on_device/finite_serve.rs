//! A server whose model gives logits that are not finite: only the affected request is an error.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use warploom::runtime::Runtime;
use warploom_core::base::Format;
use warploom_llm::{Sampling, Session};
use warploom_serve::{Failure, Job, Piece, ServeOptions, Server, Ticket};

use crate::finite::{Fault, counting, samplings};
use crate::serve::{health, post};
use crate::{devices, tell};

fn server(runtime: Runtime, fault: Fault) -> Server {
    let model = counting(Format::Q8_0, fault);
    let session = Session::builder(model).runtime(runtime).sequences(3).build().unwrap();
    let address = SocketAddr::from(([127, 0, 0, 1], 0));
    let sampling = Sampling::greedy();
    Server::start(session, ServeOptions::default().address(address).sampling(sampling)).unwrap()
}

/// The text of an answer, and the reason of its end.
fn wait(ticket: &Ticket) -> (String, Option<Failure>) {
    let mut text = String::new();
    loop {
        match ticket.next(Duration::from_secs(300)).expect("an answer in time") {
            Piece::Started { .. } => {}
            Piece::Text(more) => text.push_str(&more),
            Piece::Done(_) => return (text, None),
            Piece::Failed(failure) => return (text, Some(failure)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_request_fails_and_the_others_are_answered() {
    for (label, runtime) in devices::every(false) {
        if crate::finite::is_left_out(&label, &runtime) {
            continue;
        }
        let server = server(runtime, Fault::Embedding(9));
        let ask = |prompt: &[u32], sampling: &Sampling| {
            let job = Job::new(prompt.to_vec(), Instant::now() + Duration::from_secs(600));
            let job = job.max_tokens(5).sampling(sampling.clone());
            server.queue().submit(job).unwrap()
        };
        let ways = samplings();
        // All with the same settings, then with different ones.
        for turn in 0..4 {
            let way = |i: usize| &ways[if turn < 3 { turn } else { i }].1;
            let right = [ask(&[1, 2, 3], way(0)), ask(&[40], way(1))];
            let wrong = [ask(&[6, 7], way(2)), ask(&[3, 9, 4], way(0))];
            let texts = right.each_ref().map(wait);
            assert!(matches!(&texts[0], (text, None) if text == "%&'()"), "{label}: {texts:?}");
            assert!(matches!(&texts[1], (text, None) if text == "JKLMN"), "{label}: {texts:?}");
            // 8 and 9 are generated before no token can follow; the other prompt already contains
            // 9.
            for (ticket, text, position) in [(&wrong[0], ")*", 4), (&wrong[1], "", 3)] {
                match wait(ticket) {
                    (had, Some(Failure::Model(error))) => {
                        let error = error.to_string();
                        let part = format!("position {position}:");
                        assert_eq!(had, text, "{label}: {error}");
                        assert!(error.contains(&part) && error.contains("NaN"), "{label}: {error}");
                    }
                    other => panic!("{label}: {other:?}"),
                }
            }
        }
        assert!(!server.queue().is_failing(), "the device is as it was");
        server.stop(Duration::from_secs(60)).unwrap();
        tell(&format!("finite: {label}: of four requests at once two fail, four times"));
    }
}

#[test]
fn clients_read_which_logit_it_was() {
    let runtime = Runtime::builder().device("cpu").build().unwrap();
    let server = server(runtime, Fault::Logit(5));
    for more in ["", ",\"temperature\":1"] {
        let body = format!("{{\"prompt\":\"ABC\",\"max_tokens\":4{more}}}");
        let (status, answer) = post(server.address(), "/v1/completions", &body);
        assert_eq!(status, 500, "{answer}");
        assert_eq!(answer["error"]["code"], "no_token", "{answer}");
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.contains("position 3: logit 5 is NaN"), "{message}");
    }
    assert_eq!(health(server.address())["running"], 0);
    server.stop(Duration::from_secs(5)).unwrap();
}

//! Search for one task: candidates in generations, each timed against the best so far.

use std::time::{Duration, Instant};

use super::Search;
use super::bench_memory::{BenchMemory, Runner, Written, agree, written};
use super::successive_halving::{Fault, Lane, Raced, race};
use super::synthetic_data::is_finite;
use crate::engine::{EngineId, KnobValues, Tuned};
use crate::plan::Task;
use crate::runtime::tune::cache::Suspect;
use crate::runtime::tune::options::{Dropped, TuneResult};

/// Minimum speed-up over the estimated choice, beyond noise, for a candidate to be preferred. On an
/// H200, for a norm of 576 elements, the winner by rounds alone took 1.7 us when measured again,
/// the estimated choice 1.5 us.
const GAIN: f64 = 1.03;
/// Minimum fraction of rounds won. A candidate that is faster only by noise wins about half.
const SURE: f64 = 0.8;
/// A generation is followed by another if it reduces the best time to at most this fraction.
const STEP: f64 = 0.99;
/// Minimum rounds of the final comparison.
const LEAST: usize = 5;
/// Rounds of an exploratory race.
const FEW: usize = 9;

/// An engine with knob values.
type Way = (EngineId, KnobValues);

/// A search in progress for one task.
pub(super) struct Attempt<'s, 'a> {
    pub(super) search: &'s mut Search<'a>,
    pub(super) task: &'s Task,
    pub(super) bed: BenchMemory<'s>,
    pub(super) positive: bool,
    /// Approximate deadlines of the exploration and of the final comparison.
    pub(super) until: [Instant; 2],
    pub(super) result: TuneResult,
    /// Result of the estimated choice at each point, by tensor.
    pub(super) expected: Written,
    pub(super) tried: Vec<Way>,
    pub(super) tell: &'s mut dyn FnMut(usize),
}

impl Attempt<'_, '_> {
    /// Searches the task; returns whether it could be measured with this data.
    pub(super) fn run(&mut self) -> Raced<bool> {
        let (first, base, expected) = self.first()?;
        let types = written(&self.task.contents);
        let finite = expected.iter().all(|point| {
            point.iter().zip(&types).all(|(bytes, (_, dtype))| is_finite(*dtype, bytes))
        });
        if !finite {
            return Ok(false);
        }
        (self.expected, self.result.measured) = (expected, 1);
        self.bed.warm(&base, self.search.options.warm_up)?;
        let engines = self.task.engines.iter().take(self.search.options.engines + 1);
        let ways: Vec<Way> = engines.map(|id| (id.clone(), KnobValues::default())).collect();
        // The best of each race with their ratios. Knobs of the best engines are tried next.
        let mut field = vec![(first, base, 1.0)];
        let mut ways = self.fresh(ways);
        loop {
            let before = least(&field);
            field = self.generation(field, ways)?;
            let leaders: Vec<(Way, f64)> =
                field.iter().map(|(way, _, ratio)| (way.clone(), *ratio)).collect();
            ways = Vec::new();
            let more =
                least(&field) < STEP * before || self.tried.len() <= 1 + self.task.engines.len();
            if !more || Instant::now() > self.until[0] {
                break;
            }
            for (way, ratio) in leaders {
                if ratio <= 1.3 * least(&field) {
                    ways.extend(self.neighbours(&way));
                }
            }
            ways = self.fresh(ways);
            if ways.is_empty() {
                break;
            }
        }
        self.decide(field)?;
        Ok(true)
    }

    /// Runs the estimated choice and returns it with its result. If it does not run, the engine
    /// with the next best estimate is tried.
    fn first(&mut self) -> Raced<(Way, Runner, Written)> {
        for engine in &self.task.engines {
            let way = (engine.clone(), KnobValues::default());
            for way in self.fresh(vec![way]) {
                // Accepted however slow it is: it is the reference for results, and plans use it
                // now.
                match self.check(&way, self.search.options.hang_limit) {
                    Ok((runner, expected)) => return Ok((way, runner, expected)),
                    Err(Fault::Out(why)) => self.drop(way, why),
                    Err(stop) => return Err(stop),
                }
            }
        }
        let last = self.result.dropped.last();
        let last = last.map(|last| format!(": {}: {}", last.engine, last.why)).unwrap_or_default();
        Err(Fault::Out(format!("no engine executes it{last}")))
    }

    /// Returns the candidates that were not tried yet, within the candidate limit.
    fn fresh(&mut self, ways: Vec<Way>) -> Vec<Way> {
        let mut fresh: Vec<Way> = Vec::new();
        for way in ways {
            let room = self.tried.len() < self.search.options.candidates;
            if !room || self.tried.contains(&way) {
                continue;
            }
            self.tried.push(way.clone());
            if self.search.record.avoids(&self.task.key, &way.0, &way.1) {
                self.drop(way, "it ended a process, or never came back".into());
            } else {
                fresh.push(way);
            }
        }
        fresh
    }

    /// Returns candidates of the same engine with one knob changed to a nearby value.
    fn neighbours(&self, (engine, set): &Way) -> Vec<Way> {
        let registry = self.search.runtime.registry();
        let knobs = self.task.knobs(registry, engine, set);
        let mut ways = Vec::new();
        for knob in &knobs {
            let now = knob.value(set);
            let at = knob.values.iter().position(|value| *value == now).unwrap_or(0);
            for step in [-1isize, 1, -2, 2, -4, 4] {
                let Some(value) = at.checked_add_signed(step).and_then(|i| knob.values.get(i))
                else {
                    continue;
                };
                let way = (engine.clone(), set.clone().with(knob.name, *value));
                // One knob may bound another.
                let knobs = self.task.knobs(registry, engine, &way.1);
                let fits = knobs.iter().all(|knob| {
                    way.1.get(knob.name).is_none_or(|value| knob.values.contains(&value))
                });
                ways.extend(fits.then_some(way));
            }
        }
        ways
    }

    /// Checks new candidates, races them against earlier ones, and returns the estimated choice and
    /// the best two others.
    fn generation(
        &mut self,
        mut field: Vec<(Way, Runner, f64)>,
        ways: Vec<Way>,
    ) -> Raced<Vec<(Way, Runner, f64)>> {
        let fresh = !ways.is_empty();
        let limit = self.search.options.run_limit;
        for way in ways {
            if Instant::now() > self.until[0] && field.len() > 1 {
                break;
            }
            (self.tell)(self.tried.len());
            match self.check(&way, limit).and_then(|(runner, got)| {
                agree(self.task, &self.expected, &got)
                    .map(|()| runner)
                    .map_err(|why| Fault::Out(format!("wrong: {why}")))
            }) {
                Ok(runner) => {
                    self.result.measured += 1;
                    field.push((way, runner, f64::INFINITY));
                }
                Err(Fault::Out(why)) => self.drop(way, why),
                Err(stop) => return Err(stop),
            }
        }
        if field.len() < 2 || !fresh {
            return Ok(field);
        }
        let lanes = self.race(&field, (3, FEW), self.until[0])?;
        let mut ranked: Vec<((Way, Runner, f64), Lane)> = field.into_iter().zip(lanes).collect();
        let mut rest = ranked.split_off(1);
        rest.retain(|((way, ..), lane)| {
            let failed = lane.failed.clone();
            failed.into_iter().for_each(|why| self.drop(way.clone(), why));
            lane.failed.is_none()
        });
        rest.sort_by(|(_, a), (_, b)| a.ratio.total_cmp(&b.ratio));
        rest.truncate(2);
        ranked.extend(rest);
        Ok(ranked.into_iter().map(|((way, runner, _), lane)| (way, runner, lane.ratio)).collect())
    }

    /// Compares the best candidate with the estimated choice over all rounds and stores the winner.
    fn decide(&mut self, mut field: Vec<(Way, Runner, f64)>) -> Raced<()> {
        let best = (1..field.len()).min_by(|a, b| field[*a].2.total_cmp(&field[*b].2));
        let rounds = self.search.options.rounds.max(LEAST);
        let mut kept = vec![field.remove(0)];
        if let Some(best) = best {
            kept.push(field.swap_remove(best - 1));
            kept.extend(self.twin(&kept[0].0.clone())?);
        }
        let lanes = self.race(&kept, (LEAST, rounds), self.until[1])?;
        let ((first, ..), base) = (&kept[0], &lanes[0]);
        if let Some(why) = &base.failed {
            return Err(Fault::Out(why.clone()));
        }
        let twin = lanes.get(2).filter(|lane| lane.failed.is_none());
        // Ratio between two measurements of the same work, in either direction.
        let noise = twin.map_or(1.0, |lane| lane.ratio.max(lane.ratio.recip()));
        let won = kept.iter().zip(&lanes).nth(1).filter(|(_, lane)| {
            lane.rounds.len() >= LEAST && lane.beats(base, GAIN.max(noise), SURE)
        });
        let (way, lane) = won.map_or((first, base), |((way, ..), lane)| (way, lane));
        let registry = self.search.runtime.registry();
        self.result.ratio = lane.ratio;
        self.result.tuned = Some(Tuned {
            engine: way.0.clone(),
            engine_version: registry.get(&way.0).map_or(1, |engine| engine.version()),
            knobs: way.1.clone(),
            seconds: lane.seconds(0),
            against: first.0.clone(),
            against_seconds: base.seconds(0),
        });
        Ok(())
    }

    /// Prepares the same candidate again in separate memory: a time difference is noise. Returns
    /// `None` if that fails, for example for lack of memory.
    fn twin(&mut self, way: &Way) -> Raced<Option<(Way, Runner, f64)>> {
        match self.check(way, self.search.options.hang_limit) {
            Ok((runner, _)) => Ok(Some((way.clone(), runner, 1.0))),
            Err(Fault::Out(why)) => {
                tracing::debug!("{} by {} a second time: {why}", self.task.label, way.0);
                Ok(None)
            }
            Err(stop) => Err(stop),
        }
    }

    fn race(
        &mut self,
        field: &[(Way, Runner, f64)],
        rounds: (usize, usize),
        until: Instant,
    ) -> Raced<Vec<Lane>> {
        // The device idles during checks.
        let mut at = 0;
        let warm = self.bed.warm(&field[0].1, self.search.options.warm_up / 5);
        let lanes = warm.and_then(|()| {
            let mut time = |i: usize| {
                at = i;
                self.bed.time(&field[i].1)
            };
            let late = &mut || Instant::now() > until;
            race(field.len(), rounds, &mut time, late).map_err(Fault::Stop)
        });
        if let Err(Fault::Stop(error)) = &lanes {
            let suspect = self.suspect(&field[at].0, error.to_string());
            self.search.blame(suspect);
        }
        lanes
    }

    fn suspect(&self, (engine, knobs): &Way, why: String) -> Suspect {
        let (engine, knobs) = (engine.clone(), knobs.clone());
        Suspect { task: self.task.key.clone(), engine, knobs, why }
    }

    /// Compiles and runs a candidate once; returns its result. Writes the journal entry first.
    fn check(&mut self, way: &Way, limit: Duration) -> Raced<(Runner, Written)> {
        let why = format!("the process ended while {} ran", self.task.label);
        let suspect = self.suspect(way, why);
        if let Some(journal) = &mut self.search.journal {
            // Without an entry a candidate that ends the process is tried again. That is no reason
            // to stop.
            if let Err(error) = journal.note(&suspect) {
                tracing::warn!("the tuner's journal: {error}");
            }
        }
        let registry = self.search.runtime.registry();
        let trial = self.task.trial(registry, &way.0, &way.1);
        let trial = trial.map_err(|error| Fault::Out(error.to_string()))?;
        let checked = self.bed.check(trial, self.positive, limit);
        if let Some(journal) = &mut self.search.journal {
            journal.clear();
        }
        match &checked {
            Err(Fault::Stop(error)) => {
                self.search.blame(Suspect { why: error.to_string(), ..suspect });
            }
            Err(Fault::Out(why)) if self.bed.left_behind() => {
                self.search.left.push(Suspect { why: why.clone(), ..suspect });
            }
            _ => {}
        }
        checked
    }

    fn drop(&mut self, (engine, knobs): Way, why: String) {
        tracing::debug!("{} by {engine} {knobs} is out: {why}", self.task.label);
        self.result.dropped.push(Dropped { engine, knobs, why });
    }
}

/// Returns the smallest ratio.
fn least(field: &[(Way, Runner, f64)]) -> f64 {
    field.iter().map(|(.., ratio)| *ratio).fold(f64::INFINITY, f64::min)
}

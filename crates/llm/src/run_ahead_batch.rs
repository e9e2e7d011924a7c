//! Run-ahead decoding of several sequences: as `ahead`, with one token of each in every run.

use super::batch::{class_index, words_of};
use super::decoder::{Run, SEQ, Wanted};
use super::device_sampling::words_of_run;
use super::session::{Kind, Session};
use warploom::base::SymbolValues;
use warploom::error::{Error, Result};
use warploom::sampling::{Draw, NoToken};

impl Session {
    /// Continues from the tokens chosen by the last runs of several sequences: `count` best tokens
    /// of each, by runs, in the order of the sequences. The last run of each must have chosen a
    /// token, best or sampled.
    ///
    /// # Errors
    /// Invalid, for no sequence, a sequence given twice or without a chosen token, `count` more
    /// positions than the context has room for, or no token to choose (the cache is then
    /// unchanged); errors of planning and of the device.
    pub async fn run_each_ahead(
        &mut self,
        sequences: &[usize],
        count: usize,
    ) -> Result<Vec<Vec<u32>>> {
        self.each_goes_on(sequences, Wanted::Token, &vec![Vec::new(); count]).await
    }

    /// As [`Session::run_each_ahead`], but one run per list of draws, one draw per sequence.
    ///
    /// # Errors
    /// As [`Session::run_each_ahead`]; invalid, if a list has another length.
    pub async fn draw_each_ahead(
        &mut self,
        sequences: &[usize],
        draws: &[Vec<Draw>],
    ) -> Result<Vec<Vec<u32>>> {
        if let Some(list) = draws.iter().find(|list| list.len() != sequences.len()) {
            let text = format!("{} draws for {} sequences", list.len(), sequences.len());
            return Err(Error::invalid(text));
        }
        self.each_goes_on(sequences, Wanted::Drawn, draws).await
    }

    async fn each_goes_on(
        &mut self,
        sequences: &[usize],
        wanted: Wanted,
        draws: &[Vec<Draw>],
    ) -> Result<Vec<Vec<u32>>> {
        let count = draws.len();
        self.check_each(sequences, count)?;
        let symbols = SymbolValues::new().with(SEQ, sequences.len() as u64);
        let args = draws.iter().enumerate().map(|(run, draws)| {
            let mut inputs = self.places_of_each(sequences, run, true);
            if wanted == Wanted::Drawn {
                inputs.push(words_of(draws));
            }
            (symbols.clone(), inputs)
        });
        let args: Vec<_> = args.collect();
        // Unknown until all of them are done.
        sequences.iter().for_each(|sequence| self.chosen[*sequence] = false);
        let kind = Kind { run: Run::EachAhead, class: class_index(sequences.len()), wanted };
        let at_once = self.tokens_ahead();
        let instance = self.instance(kind).await?;
        let mut runs = Vec::with_capacity(count);
        for (run, outputs) in instance.read_all_async(args, at_once).await?.into_iter().enumerate()
        {
            let bytes = outputs.into_iter().next().unwrap_or_default();
            let words = words_of_run(sequences.len(), &bytes)?;
            for (word, sequence) in words.iter().zip(sequences) {
                let position = self.past[*sequence] + run + 1;
                NoToken::check(*word).map_err(|why| self.no_token(*sequence, position, why))?;
            }
            runs.push(words);
        }
        for sequence in sequences {
            self.past[*sequence] += count;
            self.chosen[*sequence] = true;
        }
        Ok(runs)
    }

    fn check_each(&self, sequences: &[usize], count: usize) -> Result<()> {
        if sequences.is_empty() {
            return Err(Error::invalid("no sequences to run"));
        }
        let context = self.context();
        for (i, sequence) in sequences.iter().enumerate() {
            self.check_sequence(*sequence)?;
            if sequences[..i].contains(sequence) {
                return Err(Error::invalid(format!("sequence {sequence} twice in one run")));
            }
            if !self.chosen[*sequence] {
                return Err(Error::invalid(format!(
                    "sequence {sequence} has no token to continue from: its last run chose none"
                )));
            }
            let past = self.past[*sequence];
            if count > context - past {
                return Err(Error::invalid(format!(
                    "{count} tokens after {past} do not fit a context of {context} positions"
                )));
            }
        }
        Ok(())
    }

    /// As [`Session::run_each_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::run_each_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn run_each_ahead_blocking(
        &mut self,
        sequences: &[usize],
        count: usize,
    ) -> Result<Vec<Vec<u32>>> {
        warploom::base::platform::block_on(self.run_each_ahead(sequences, count))
    }

    /// As [`Session::draw_each_ahead`], blocking.
    ///
    /// # Errors
    /// As [`Session::draw_each_ahead`].
    #[cfg(not(target_arch = "wasm32"))]
    pub fn draw_each_ahead_blocking(
        &mut self,
        sequences: &[usize],
        draws: &[Vec<Draw>],
    ) -> Result<Vec<Vec<u32>>> {
        warploom::base::platform::block_on(self.draw_each_ahead(sequences, draws))
    }
}

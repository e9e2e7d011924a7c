//! Runs `warploom download`, and finds the models that `--model` names on Hugging Face.

use crate::Exit;
use crate::download_args::DownloadArgs;
use std::path::{Path, PathBuf};

#[cfg(feature = "download")]
mod with_hub {
    use super::*;
    use crate::interrupt;
    use crate::progress::{Progress as Bar, tell};
    use serde_json::json;
    use std::io::Write;
    use warploom_models::download::{Hub, HubOptions, Progress, Source};

    const BAR: &str =
        "{msg} {bar:30} {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}";

    pub(crate) fn run(args: &DownloadArgs) -> anyhow::Result<Exit> {
        interrupt::listen()?;
        let source = Source::parse(&args.name)?;
        let mut options = HubOptions::from_env()?;
        options.offline |= args.offline;
        let path = fetch(&Hub::new(options), &source, args.quiet)?;
        let mut out = crate::output::stdout();
        match args.json {
            true => writeln!(out, "{}", json!({ "schema": 1, "name": args.name, "path": path }))?,
            false => writeln!(out, "{}", path.display())?,
        }
        Ok(Exit::Done)
    }

    /// Returns the path of a model. A name on Hugging Face is looked up in the cache, and
    /// downloaded if it is not there.
    pub(crate) fn here(path: &Path) -> anyhow::Result<PathBuf> {
        let Some(name) = path.to_str().filter(|name| Source::is_meant(name)) else {
            return Ok(path.to_owned());
        };
        let source = Source::parse(name)?;
        let hub = Hub::new(HubOptions::from_env()?);
        match hub.cached(&source)? {
            Some(path) => Ok(path),
            None => fetch(&hub, &source, false),
        }
    }

    fn fetch(hub: &Hub, source: &Source, quiet: bool) -> anyhow::Result<PathBuf> {
        let mut bar = Bar::of(quiet, BAR);
        let mut all = 0;
        let path = hub.fetch(source, &mut |progress| match progress {
            Progress::File(name, have, total) => {
                bar = Bar::of(quiet, BAR);
                bar.name(name);
                bar.set(have, total);
                all = total;
            }
            Progress::Bytes(have) => bar.set(have, all),
            Progress::Retry(why, wait) => {
                if !quiet {
                    bar.above(&format!(
                        "{why}; again in {}",
                        crate::units::seconds(wait.as_secs_f64())
                    ));
                }
            }
        });
        drop(bar);
        let path = path?;
        if !quiet {
            tell(&format!("{source} is {}", path.display()));
        }
        Ok(path)
    }
}

#[cfg(feature = "download")]
pub(crate) use with_hub::{here, run};

#[cfg(not(feature = "download"))]
pub(crate) fn run(_: &DownloadArgs) -> anyhow::Result<Exit> {
    anyhow::bail!("this command was built without the feature `download`")
}

/// Returns the given path, since this build cannot download.
#[cfg(not(feature = "download"))]
pub(crate) fn here(path: &Path) -> anyhow::Result<PathBuf> {
    Ok(path.to_owned())
}

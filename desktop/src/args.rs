//! Arguments of the program.

use std::ffi::OsString;
use std::path::PathBuf;

/// What `--help` prints.
pub const HELP: &str = "\
The desktop program of warploom: chat, devices, kernels and pictures in one window.

Usage: warploom-desktop [OPTIONS] [MODEL]

Arguments:
  [MODEL]              GGUF file or folder of Hugging Face to load (default: the last one, or the
                       embedded one)

Options:
      --device ID      device of the model, such as cpu or webgpu:0
      --folder DIR     folder of conversations and settings (default: in the user's data folder)
      --script FILE    run the steps of a script, and exit
      --screenshot PNG save a picture of the window at the end of the script, and exit
      --offscreen      draw into memory, without a screen; needs a script or a picture to save
  -h, --help           print this
  -V, --version        print the version
";

/// Arguments of the program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Args {
    /// The model to load.
    pub model: Option<PathBuf>,
    /// Id of the device.
    pub device: Option<String>,
    /// Folder of conversations and settings.
    pub folder: Option<PathBuf>,
    /// File of a script.
    pub script: Option<PathBuf>,
    /// Picture at the end of the script.
    pub screenshot: Option<PathBuf>,
    /// Whether the window is drawn into memory.
    pub offscreen: bool,
    /// Whether the help is printed.
    pub help: bool,
    /// Whether the version is printed.
    pub version: bool,
}

impl Args {
    /// Reads arguments, without the program's name.
    ///
    /// # Errors
    /// If an option is unknown or lacks its value.
    pub fn read(args: impl IntoIterator<Item = OsString>) -> Result<Args, String> {
        let mut read = Args::default();
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let text = arg.to_string_lossy().into_owned();
            let mut value = || args.next().ok_or_else(|| format!("{text} needs a value"));
            match text.as_str() {
                "-h" | "--help" => read.help = true,
                "-V" | "--version" => read.version = true,
                "--device" => read.device = Some(value()?.to_string_lossy().into_owned()),
                "--folder" => read.folder = Some(value()?.into()),
                "--offscreen" => read.offscreen = true,
                "--script" => read.script = Some(value()?.into()),
                "--screenshot" => read.screenshot = Some(value()?.into()),
                option if option.starts_with('-') => {
                    return Err(format!("there is no option {option}; --help lists them"));
                }
                _ if read.model.is_some() => {
                    return Err(format!("{text}: one model can be loaded"));
                }
                _ => read.model = Some(arg.into()),
            }
        }
        if read.offscreen && read.script.is_none() && read.screenshot.is_none() {
            return Err("--offscreen needs --script or --screenshot, or it would not end".into());
        }
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(args: &[&str]) -> Result<Args, String> {
        Args::read(args.iter().map(OsString::from))
    }

    #[test]
    fn arguments_are_read_or_refused() {
        let got = read(&["--device", "cpu", "a.gguf", "--screenshot", "b.png"]).unwrap();
        assert_eq!((got.model, got.device), (Some("a.gguf".into()), Some("cpu".into())));
        assert_eq!((got.screenshot, got.script), (Some("b.png".into()), None));
        assert!(read(&["-h"]).unwrap().help);
        assert!(read(&["--script"]).unwrap_err().contains("needs a value"));
        assert!(read(&["--what"]).unwrap_err().contains("--what"));
        assert!(read(&["--offscreen"]).unwrap_err().contains("--script"));
        assert!(read(&["--offscreen", "--script", "a"]).unwrap().offscreen);
        assert!(read(&["a", "b"]).unwrap_err().contains("one model"));
    }
}

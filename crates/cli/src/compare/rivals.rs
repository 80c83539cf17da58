//! Other runtimes, in a Python process that loads them once and runs them when it is told to.

use std::io::{BufRead, BufReader, Cursor, ErrorKind, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use fuseline::error::{Error, Result};
use fuseline_frontend::Tensors;
use fuseline_frontend::npz::{Compression, ReadOptions, read_npz_from, write_npz_to};
use serde::Deserialize;
use serde_json::{Value, json};

/// The script, which travels with the command.
const SCRIPT: &str = include_str!("rivals.py");

/// Where errors about the interpreter are.
pub const PYTHON: &str = "--python";

/// What a rival is asked to do.
#[derive(Debug)]
pub struct Task<'a> {
    pub model: &'a Path,
    pub feed: &'a Tensors,
    /// the names of the outputs, in the model's order
    pub outputs: Vec<&'a str>,
    /// where it runs: `cpu` or `cuda`
    pub device: &'static str,
    pub threads: usize,
    pub precision: &'static str,
}

/// What became of a rival.
#[derive(Debug)]
pub enum State {
    Ready {
        version: String,
        /// loading the model and the first run
        seconds: f64,
        outputs: Tensors,
    },
    Missing {
        why: String,
        /// what pip is to install
        install: String,
    },
    Failed {
        why: String,
    },
}

/// The process that has them.
#[derive(Debug)]
pub struct Rivals {
    child: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// whether it is what it should be, as far as is known
    has_answered: bool,
}

/// An answer of the script.
#[derive(Debug, Deserialize)]
struct Answer {
    bytes: u64,
    state: Option<String>,
    version: Option<String>,
    seconds: Option<f64>,
    why: Option<String>,
    install: Option<String>,
    ms: Option<Vec<f64>>,
}

impl Rivals {
    /// Loads the model in every rival.
    pub fn load(&mut self, names: &[&'static str], task: &Task<'_>) -> Result<Vec<State>> {
        let feed = task.feed.iter().map(|(name, tensor)| (name.as_str(), tensor));
        let content = write_npz_to(Cursor::new(Vec::new()), feed, Compression::Stored)?.into_inner();
        let model = task.model.to_str().ok_or_else(|| Error::invalid("a path that is no text"))?;
        let request = json!({
            "model": model,
            "rivals": names,
            "outputs": task.outputs,
            "device": task.device,
            "threads": task.threads,
            "precision": task.precision,
            "bytes": content.len(),
        });
        self.send(&request, &content)?;
        names.iter().map(|_| self.state()).collect()
    }

    /// Starts the interpreter that is asked for, or the first that there is.
    pub fn start(python: Option<&Path>) -> Result<Rivals> {
        let candidates = match python {
            Some(path) => vec![path.to_path_buf()],
            None => vec![PathBuf::from("python3"), PathBuf::from("python")],
        };
        for candidate in &candidates {
            let mut command = Command::new(candidate);
            command.args(["-c", SCRIPT]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
            match command.spawn() {
                Ok(mut child) => {
                    let pipes = child.stdin.take().zip(child.stdout.take());
                    let (requests, answers) = pipes.ok_or_else(|| Error::bug("a process without its pipes"))?;
                    return Ok(Rivals { child, requests, answers: BufReader::new(answers), has_answered: false });
                }
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(
                        Error::invalid(format!("{} cannot be started: {error}", candidate.display())).at(PYTHON)
                    );
                }
            }
        }
        let names: Vec<String> = candidates.iter().map(|path| path.display().to_string()).collect();
        Err(Error::invalid(format!("there is no {}", names.join(" and no "))).at(PYTHON))
    }

    /// How long so many runs of a rival took, in milliseconds.
    pub fn time(&mut self, name: &str, iters: usize) -> Result<Vec<f64>> {
        self.send(&json!({ "rival": name, "iters": iters }), &[])?;
        let (answer, _) = self.receive()?;
        answer.ms.ok_or_else(|| Error::bug("an answer without times").at("rivals.py"))
    }

    fn state(&mut self) -> Result<State> {
        let (answer, content) = self.receive()?;
        let why = answer.why.unwrap_or_default();
        match answer.state.as_deref() {
            Some("ready") => Ok(State::Ready {
                version: answer.version.unwrap_or_default(),
                seconds: answer.seconds.unwrap_or(0.0),
                outputs: read_npz_from(Cursor::new(content), &ReadOptions::default())?,
            }),
            Some("missing") => Ok(State::Missing { why, install: answer.install.unwrap_or_default() }),
            _ => Ok(State::Failed { why }),
        }
    }

    fn send(&mut self, request: &Value, content: &[u8]) -> Result<()> {
        let mut bytes = request.to_string().into_bytes();
        bytes.push(b'\n');
        let sent = self.requests.write_all(&bytes).and_then(|()| self.requests.write_all(content));
        sent.and_then(|()| self.requests.flush()).map_err(|_| self.unheard())
    }

    fn receive(&mut self) -> Result<(Answer, Vec<u8>)> {
        let mut line = String::new();
        let length = self.answers.read_line(&mut line).map_err(|_| ended())?;
        if length == 0 {
            return Err(self.unheard());
        }
        let answer: Answer = match serde_json::from_str(&line) {
            Ok(answer) => answer,
            Err(_) if !self.has_answered => return Err(self.unheard()),
            Err(error) => return Err(Error::bug(format!("an answer that is none: {error}")).at("rivals.py")),
        };
        self.has_answered = true;
        let mut content = Vec::new();
        (&mut self.answers).take(answer.bytes).read_to_end(&mut content).map_err(|_| ended())?;
        Ok((answer, content))
    }
}

fn ended() -> Error {
    Error::unsupported(
        "the Python process with the other runtimes ended by itself: one of them crashed, or memory ran out",
    )
}

impl Rivals {
    /// Why there is no answer: there was one before, or never.
    fn unheard(&self) -> Error {
        match self.has_answered {
            true => ended(),
            false => Error::invalid(
                "it ended by itself before its first answer: it is no Python, or a runtime crashed as it opened the model",
            )
            .at(PYTHON),
        }
    }
}

impl Drop for Rivals {
    fn drop(&mut self) {
        // It ends when nobody asks any more; one that hangs is not waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

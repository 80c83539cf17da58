//! Files that are written whole or not at all.

use std::fs::{self, File};
use std::io::{self, BufWriter, Cursor, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf, is_separator};

use fuseline::error::Error;
use fuseline_frontend::npz::{Array, Compression, write_npz_to};

use crate::failure::{Failure, Outcome};
use crate::part::Part;

/// Writes a file: beside its place first, then put there, so that nobody ever finds half of it. What was there stays where this fails.
///
/// Links are followed; what is no file, such as a pipe, is written to as it is.
pub fn write(path: &Path, contents: &[u8]) -> Outcome {
    write_by(path, &mut |output| output.write_all(contents))
}

/// What is written into a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// arrays by name
    Arrays,
    /// a page to look at
    Page,
    /// a drawing of lines
    Lines,
    /// a picture of points
    Points,
    /// a plan as text
    Plan,
    /// the description of a device
    Device,
}

impl Content {
    /// What it is, and the endings of names that say so.
    fn known(self) -> (&'static str, &'static [&'static str]) {
        match self {
            Content::Arrays => ("arrays by name (.npz)", &["npz"]),
            Content::Page => ("a page (.html)", &["html", "htm"]),
            Content::Lines => ("SVG (.svg)", &["svg"]),
            Content::Points => ("PNG (.png)", &["png"]),
            Content::Plan => ("a plan as text", &[]),
            Content::Device => ("the description of a device (.spec)", &["spec"]),
        }
    }
}

/// Endings that say what is in a file, to everybody and to the programs that open it.
const TELLING: [&str; 20] = [
    "npz", "npy", "html", "htm", "svg", "png", "jpg", "jpeg", "gif", "webp", "pdf", "spec", "onnx", "ir", "tile", "cu",
    "py", "zip", "csv", "rs",
];

/// Whether the name of a file says that something else is in it.
fn check_name(path: &Path, content: Content) -> Outcome {
    let (what, own) = content.known();
    let ending = path.extension().and_then(|ending| ending.to_str()).unwrap_or_default().to_lowercase();
    if own.contains(&ending.as_str()) || !TELLING.contains(&ending.as_str()) {
        return Ok(());
    }
    let error = Error::invalid(format!("{what} would be written into a file called .{ending}"));
    let help = match own.first() {
        Some(own) => format!("call it {}", path.with_extension(own).display()),
        None => "give it another name".into(),
    };
    Err(Failure::explained(error.at(path.display().to_string()), "the name says that something else is in it", help))
}

/// Whether such a file can be written there, asked before the work: its name says nothing else, the place takes a few bytes, and none of
/// the files that are read is there.
pub fn check<'a>(path: &Path, content: Content, read: impl IntoIterator<Item = &'a Path>) -> Outcome {
    check_place(path, read)?;
    check_name(path, content)
}

/// Whether files can be written into a folder, asked before the work. Folders that are missing are made for good only by the work.
pub fn check_folder(folder: &Path) -> Outcome {
    let there = folder.ancestors().find(|above| above.as_os_str().is_empty() || above.symlink_metadata().is_ok());
    let there = there.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match fs::metadata(there) {
        Ok(found) if !found.is_dir() => Err(Failure::not_written(folder, ErrorKind::NotADirectory.into())),
        Err(error) => Err(Failure::not_written(folder, error)),
        Ok(_) => {
            let taken = Part::beside(&there.join("fuseline")).and_then(|(_part, mut file)| file.write_all(&[0; 4096]));
            taken.map_err(|error| Failure::not_written(folder, error))
        }
    }
}

/// Whether the place takes a few bytes, and none of the files that are read is there.
pub fn check_place<'a>(path: &Path, read: impl IntoIterator<Item = &'a Path>) -> Outcome {
    if path == Path::new("-") {
        let error = Error::invalid("- is no file").at("-");
        return Err(Failure::explained(error, "what is written has a name", "/dev/stdout is standard output"));
    }
    let place = place(path);
    let whole = |path: &Path| fs::canonicalize(path).ok();
    if let Some(found) = whole(&place)
        && let Some(same) = read.into_iter().find(|other| whole(other).is_some_and(|other| other == found))
    {
        let error = Error::invalid(format!("{} is read, and would be overwritten", same.display()));
        return Err(Failure::explained(
            error.at(path.display().to_string()),
            "what is written is no model and no input any more",
            "give another name for what is written",
        ));
    }
    if is_stream(&place) {
        return Ok(());
    }
    let is_named_as_folder =
        path.as_os_str().as_encoded_bytes().last().is_some_and(|end| is_separator(char::from(*end)));
    if place.is_dir() || is_named_as_folder {
        return Err(Failure::not_written(path, ErrorKind::IsADirectory.into()));
    }
    let taken = Part::beside(&place).and_then(|(_part, mut file)| file.write_all(&[0; 4096]));
    taken.map_err(|error| Failure::not_written(path, error))
}

/// Writes named arrays as a .npz file, in the same way.
pub fn write_arrays<'a, A: Into<Array<'a>>>(
    path: &Path,
    arrays: impl Iterator<Item = (&'a str, A)> + Clone,
) -> Outcome {
    write_by(path, &mut |output| {
        // Archives are written back and forth: what cannot do that is given all at once.
        if output.stream_position().is_err() {
            let whole = write_npz_to(Cursor::new(Vec::new()), arrays.clone(), Compression::Stored);
            return output.write_all(&whole.map_err(io::Error::other)?.into_inner());
        }
        let mut steady = Steady { output: BufWriter::new(output), failed: None, at: 0, end: 0 };
        let done = write_npz_to(&mut steady, arrays.clone(), Compression::Stored).map(drop);
        steady.flush()?;
        match steady.failed {
            Some(failed) => Err(failed),
            None => done.map_err(io::Error::other),
        }
    })
}

/// Goes on after a write has failed, as if it had not, and remembers why: an archive that cannot be written to the end is
/// dropped in peace.
struct Steady<'a> {
    output: BufWriter<&'a mut File>,
    failed: Option<io::Error>,
    /// where the next byte goes, or would go
    at: u64,
    /// behind the last byte
    end: u64,
}

impl Steady<'_> {
    fn unless_failed<T>(
        &mut self,
        otherwise: T,
        act: impl FnOnce(&mut BufWriter<&mut File>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.failed.is_some() {
            return Ok(otherwise);
        }
        act(&mut self.output).or_else(|error| {
            self.failed = Some(error);
            Ok(otherwise)
        })
    }
}

impl Write for Steady<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.unless_failed(bytes.len(), |output| output.write(bytes))?;
        self.at += written as u64;
        self.end = self.end.max(self.at);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.unless_failed((), |output| output.flush())
    }
}

impl Seek for Steady<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let place = match to {
            SeekFrom::Start(place) => Some(place),
            SeekFrom::End(by) => self.end.checked_add_signed(by),
            SeekFrom::Current(by) => self.at.checked_add_signed(by),
        };
        let place = place.ok_or(ErrorKind::InvalidInput)?;
        self.at = self.unless_failed(place, |output| output.seek(to))?;
        Ok(self.at)
    }
}

/// Where a file is in truth: links are followed, also to where nothing is yet.
fn place(path: &Path) -> PathBuf {
    /// More than any system follows: the links lead around.
    const MOST_LINKS: usize = 40;
    let mut place = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        // What /dev/stdout leads to is open, and has no name of its own.
        if is_stream(&place) {
            break;
        }
        let Ok(target) = fs::read_link(&place) else { break };
        // A link is relative to its own folder.
        place = place.parent().unwrap_or(Path::new("")).join(target);
    }
    place
}

/// Whether it is there, and neither file nor folder.
fn is_stream(place: &Path) -> bool {
    fs::metadata(place).is_ok_and(|found| !found.is_file() && !found.is_dir())
}

/// Writes a file by a function that is given it open and empty.
fn write_by(path: &Path, fill: &mut dyn FnMut(&mut File) -> io::Result<()>) -> Outcome {
    let place = place(path);
    let done = match is_stream(&place) {
        true => File::options().write(true).open(&place).and_then(|mut stream| fill(&mut stream)),
        false => replace(&place, fill),
    };
    done.map_err(|error| Failure::not_written(path, error))
}

fn replace(place: &Path, fill: &mut dyn FnMut(&mut File) -> io::Result<()>) -> io::Result<()> {
    let (part, mut file) = Part::beside(place)?;
    if let Ok(found) = fs::metadata(place) {
        // Who may read it stays as it was; where that cannot be, it is as for a new file.
        let _ = file.set_permissions(found.permissions());
    }
    fill(&mut file)?;
    file.sync_all()?;
    part.put(place)
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Literal;

    use super::*;

    #[test]
    fn places_are_checked_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        let [model, page] = ["m.onnx", "a.html"].map(|name| folder.path().join(name));
        fs::write(&model, b"model").unwrap();
        check(&page, Content::Page, [model.as_path()]).unwrap();
        assert!(!page.exists() && fs::read_dir(folder.path()).unwrap().count() == 1, "nothing is left");
        let refused = |path: &Path| check_place(path, [model.as_path()]).unwrap_err();
        assert!(format!("{:?}", refused(&model)).contains("overwritten"));
        assert!(format!("{:?}", refused(&folder.path().join("./m.onnx"))).contains("overwritten"));
        refused(folder.path());
        refused(&folder.path().join("missing/a.html"));
        refused(&folder.path().join("a.html/"));
        #[cfg(unix)]
        {
            let link = folder.path().join("link");
            std::os::unix::fs::symlink(&model, &link).unwrap();
            assert!(format!("{:?}", refused(&link)).contains("overwritten"));
        }
        assert_eq!(fs::read(&model).unwrap(), b"model");
    }

    #[test]
    fn names_that_say_something_else_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let asked = |name: &str, content| check(&folder.path().join(name), content, []);
        for (name, content) in [
            ("a.png", Content::Lines),
            ("a.SVG", Content::Points),
            ("y.npy", Content::Arrays),
            ("page.pdf", Content::Page),
            ("net.onnx", Content::Plan),
            ("here.html", Content::Device),
        ] {
            let refused = format!("{:?}", asked(name, content).unwrap_err());
            assert!(refused.contains("would be written into a file called"), "{name}: {refused}");
        }
        for (name, content) in [
            ("a.svg", Content::Lines),
            ("a.PNG", Content::Points),
            ("y", Content::Arrays),
            ("y.out", Content::Arrays),
            ("locked.json", Content::Plan),
            ("page.v2", Content::Page),
        ] {
            asked(name, content).unwrap();
        }
    }

    #[test]
    fn folders_are_checked_before_the_work_and_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let (deep, model) = (folder.path().join("a/b/c"), folder.path().join("m.onnx"));
        check_folder(&deep).unwrap();
        check_folder(folder.path()).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0, "nothing is left");
        fs::write(&model, b"model").unwrap();
        check_folder(&model).unwrap_err();
        check_folder(&model.join("case")).unwrap_err();
        #[cfg(target_os = "linux")]
        check_folder(Path::new("/proc/case")).unwrap_err();
    }

    #[test]
    fn files_are_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.html");
        write(&path, b"one").unwrap();
        write(&path, b"two").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "nothing is left beside it");
        assert!(write(&folder.path().join("missing/a.html"), b"x").is_err());
        assert!(write(folder.path(), b"x").is_err(), "a folder is no file");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert!(write(Path::new("/"), b"x").is_err());
        #[cfg(target_os = "linux")]
        {
            // Of a process that is no more, of one that is, and of another file.
            let parts =
                [".a.html.4294967295.part".to_string(), ".a.html.1.part".into(), ".b.html.4294967295.part".into()];
            let parts = parts.map(|name| folder.path().join(name));
            parts.iter().for_each(|part| fs::write(part, b"half").unwrap());
            write(&path, b"two").unwrap();
            assert_eq!(parts.clone().map(|part| part.exists()), [false, true, true], "what was killed left it");
            parts[1..].iter().for_each(|part| fs::remove_file(part).unwrap());
        }
        let array = Literal::f32s(&[1.0, 2.0]);
        let npz = folder.path().join("y.npz");
        write_arrays(&npz, [("y", &array)].into_iter()).unwrap();
        assert_eq!(&fs::read(&npz).unwrap()[..2], b"PK");
        #[cfg(target_os = "linux")]
        {
            let full = write_arrays(Path::new("/dev/full"), [("y", &array)].into_iter()).unwrap_err();
            assert!(format!("{full:?}").contains("No space left"), "{full:?}");
        }
        fs::remove_file(&npz).unwrap();
        #[cfg(unix)]
        {
            let link = folder.path().join("link.html");
            std::os::unix::fs::symlink(&path, &link).unwrap();
            write(&link, b"three").unwrap();
            assert_eq!(fs::read(&path).unwrap(), b"three", "a link is followed");
            let [ahead, target] = ["ahead.html", "target.html"].map(|name| folder.path().join(name));
            std::os::unix::fs::symlink("target.html", &ahead).unwrap();
            write(&ahead, b"four").unwrap();
            assert_eq!(fs::read(&target).unwrap(), b"four", "also to where nothing is yet");
            assert!(fs::symlink_metadata(&ahead).unwrap().is_symlink());
        }
    }
}

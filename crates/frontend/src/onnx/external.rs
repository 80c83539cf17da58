//! The files that the tensors of a model lie in: the model file itself and the files with external data beside it.

use std::collections::HashMap;
use std::fmt;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use fuseline::error::{Context, Error, Result};
use fuseline::tensor::Source;

use super::schema::StringStringEntryProto;
use crate::mapping::map_file;

/// The files of one model, each mapped once and shared by the tensors in it.
pub struct DataFiles {
    /// Where external data may lie; a model that came as bytes has no such folder.
    folder: Option<PathBuf>,
    model: DataFile,
    /// By the location that tensors give.
    external: Mutex<HashMap<String, DataFile>>,
}

#[derive(Clone)]
struct DataFile {
    /// A file on disk has a name that stands for its content; bytes from elsewhere have not.
    name: Option<Arc<str>>,
    /// The path without links, which tells whether two locations are one file.
    path: PathBuf,
    bytes: Bytes,
}

impl DataFiles {
    /// The files of a model on disk; `bytes` is its mapping.
    pub fn of_file(path: &Path, bytes: Bytes) -> DataFiles {
        let folder = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent.to_path_buf(),
            _ => PathBuf::from("."),
        };
        let model = DataFile { name: Some(display(path)), path: path.to_path_buf(), bytes };
        DataFiles { folder: Some(folder), model, external: Mutex::default() }
    }

    /// The files of a model that is held in memory: only itself.
    pub fn of_bytes(bytes: Bytes) -> DataFiles {
        let model = DataFile { name: None, path: PathBuf::new(), bytes };
        DataFiles { folder: None, model, external: Mutex::default() }
    }

    /// The folder of the model.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_deref()
    }

    /// The bytes of the model file, and of the files at these locations that can be opened.
    pub fn bytes<'a>(&self, locations: impl Iterator<Item = &'a str>) -> u64 {
        for location in locations {
            // What cannot be opened is refused where it is read.
            let _ = self.open(location);
        }
        let files = self.external.lock().unwrap_or_else(PoisonError::into_inner);
        let by_path: HashMap<&PathBuf, usize> = files.values().map(|file| (&file.path, file.bytes.len())).collect();
        by_path.values().fold(self.model.bytes.len() as u64, |sum, bytes| sum.saturating_add(*bytes as u64))
    }

    /// Where in the model file `slice` lies, if it does.
    pub fn source(&self, slice: &Bytes) -> Option<Source> {
        self.model.source(slice)
    }

    /// The `wanted` bytes that the entries of a tensor's `external_data` point to.
    pub fn external(&self, entries: &[StringStringEntryProto], wanted: usize) -> Result<(Bytes, Option<Source>)> {
        let place = Place::parse(entries)?;
        let file = self.open(place.location).at(|| format!("external data \"{}\"", place.location.escape_debug()))?;
        let slice = place.slice(&file.bytes, wanted)?;
        let source = file.source(&slice);
        Ok((slice, source))
    }

    fn open(&self, location: &str) -> Result<DataFile> {
        let mut files = self.external.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = files.get(location) {
            return Ok(file.clone());
        }
        let folder =
            self.folder.as_ref().ok_or_else(|| Error::invalid("a model without a folder has no such files"))?;
        let path = inside(folder, location)?;
        let file = match files.values().find(|file| file.path == path) {
            Some(file) => file.clone(),
            None => DataFile { name: Some(display(&folder.join(location))), bytes: map_file(&path)?, path },
        };
        files.insert(location.to_string(), file.clone());
        Ok(file)
    }
}

impl fmt::Debug for DataFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DataFiles")
            .field("folder", &self.folder)
            .field("name", &self.model.name)
            .finish_non_exhaustive()
    }
}

impl DataFile {
    fn source(&self, slice: &Bytes) -> Option<Source> {
        let file = self.name.clone()?;
        let offset = (slice.as_ptr() as usize).checked_sub(self.bytes.as_ptr() as usize)?;
        let end = offset.checked_add(slice.len())?;
        (!slice.is_empty() && end <= self.bytes.len()).then_some(Source { file, offset: offset as u64 })
    }
}

/// What the entries of `external_data` say; other keys (`checksum`, those of other tools) are no business of ours.
struct Place<'a> {
    location: &'a str,
    offset: u64,
    length: Option<u64>,
}

impl<'a> Place<'a> {
    fn parse(entries: &'a [StringStringEntryProto]) -> Result<Place<'a>> {
        let number = |key: &str| match value_of(entries, key)? {
            Some(text) => text.parse().map(Some).map_err(|_| {
                Error::invalid(format!(
                    "external data with the {key} \"{}\", not a count of bytes",
                    text.escape_debug()
                ))
            }),
            None => Ok(None),
        };
        let location = value_of(entries, "location")?.filter(|location| !location.is_empty());
        Ok(Place {
            location: location.ok_or_else(|| Error::invalid("external data without a location"))?,
            offset: number("offset")?.unwrap_or(0),
            length: number("length")?,
        })
    }

    /// The bytes at this place; without a length, as many as the tensor needs.
    fn slice(&self, file: &Bytes, wanted: usize) -> Result<Bytes> {
        let length = self.length.unwrap_or(wanted as u64);
        if length != wanted as u64 {
            return Err(Error::invalid(format!("{length} bytes of external data for a tensor that needs {wanted}")));
        }
        let end = self.offset.checked_add(length).filter(|end| *end <= file.len() as u64);
        let end = end.ok_or_else(|| {
            Error::invalid(format!(
                "external data at {} with length {length} lies beyond the {} bytes of \"{}\"",
                self.offset,
                file.len(),
                self.location.escape_debug()
            ))
        })?;
        Ok(file.slice(self.offset as usize..end as usize))
    }
}

/// The location that entries of `external_data` give.
pub(super) fn location(entries: &[StringStringEntryProto]) -> Option<&str> {
    value_of(entries, "location").ok().flatten()
}

/// The value of a key, which has at most one.
pub(super) fn value_of<'a>(entries: &'a [StringStringEntryProto], key: &str) -> Result<Option<&'a str>> {
    let mut found = entries.iter().filter(|entry| entry.key == key).map(|entry| entry.value.as_str());
    let first = found.next();
    match found.next() {
        Some(_) => Err(Error::invalid(format!("external data with more than one {key}"))),
        None => Ok(first),
    }
}

/// The path of a location, with all links followed; it lies inside `folder` or is refused.
fn inside(folder: &Path, location: &str) -> Result<PathBuf> {
    let relative = Path::new(location);
    if !relative.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
        return Err(Error::invalid("the location must be a path inside the folder of the model"));
    }
    let cannot = |error: std::io::Error| Error::invalid(format!("cannot open the file: {error}"));
    let folder = folder.canonicalize().map_err(cannot)?;
    let path = folder.join(relative).canonicalize().map_err(cannot)?;
    if !path.starts_with(&folder) {
        return Err(Error::invalid("the location is a link that leads out of the folder of the model"));
    }
    Ok(path)
}

fn display(path: &Path) -> Arc<str> {
    path.to_string_lossy().into()
}

#[cfg(test)]
mod tests {
    use fuseline::error::Kind;

    use super::*;

    fn entries(pairs: &[(&str, &str)]) -> Vec<StringStringEntryProto> {
        let entry = |(key, value): &(&str, &str)| StringStringEntryProto { key: (*key).into(), value: (*value).into() };
        pairs.iter().map(entry).collect()
    }

    /// `outside/secret`, and a model folder with `data` and `sub/data` of ten bytes.
    fn folders() -> (tempfile::TempDir, DataFiles) {
        let root = tempfile::tempdir().unwrap();
        let model = root.path().join("model");
        for folder in ["outside", "model/sub"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        for file in ["outside/secret", "model/data", "model/sub/data"] {
            std::fs::write(root.path().join(file), b"0123456789").unwrap();
        }
        let files = DataFiles::of_file(&model.join("m.onnx"), Bytes::new());
        (root, files)
    }

    #[test]
    fn slices_are_shared_and_know_their_source() {
        let (root, files) = folders();
        let read = |location, offset| {
            files.external(&entries(&[("location", location), ("offset", offset), ("length", "4")]), 4).unwrap()
        };
        let (a, source) = read("data", "2");
        assert_eq!(a, &b"2345"[..]);
        let name = root.path().join("model/data");
        assert_eq!(source, Some(Source { file: display(&name), offset: 2 }));
        let (b, _) = read("./data", "3");
        assert_eq!(b.as_ptr() as usize, a.as_ptr() as usize + 1, "both are slices of one mapping");
        assert_eq!(read("sub/data", "6").0, &b"6789"[..]);
        let (rest, _) = files.external(&entries(&[("location", "data"), ("checksum", "?")]), 3).unwrap();
        assert_eq!(rest, &b"012"[..]);
    }

    #[test]
    fn the_place_must_lie_in_the_file() {
        let (_root, files) = folders();
        for (offset, length) in [("8", "4"), ("11", "4"), ("18446744073709551615", "4"), ("0", "5"), ("0", "3")] {
            let place = entries(&[("location", "data"), ("offset", offset), ("length", length)]);
            assert_eq!(files.external(&place, 4).unwrap_err().kind(), Kind::Invalid, "{offset} {length}");
        }
        for bad in [
            entries(&[]),
            entries(&[("location", "")]),
            entries(&[("location", "data"), ("location", "data")]),
            entries(&[("location", "data"), ("offset", "-1")]),
            entries(&[("location", "data"), ("length", "0x4")]),
            entries(&[("location", "data"), ("offset", "99999999999999999999")]),
        ] {
            assert_eq!(files.external(&bad, 4).unwrap_err().kind(), Kind::Invalid, "{bad:?}");
        }
        assert!(files.external(&entries(&[("location", "data"), ("offset", "7")]), 4).is_err());
        let huge = files.external(&entries(&[("location", "data")]), usize::MAX).unwrap_err();
        assert_eq!(huge.kind(), Kind::Invalid);
    }

    #[test]
    fn locations_stay_in_the_folder() {
        let (root, files) = folders();
        let secret = root.path().join("outside/secret");
        let secret = secret.to_str().unwrap();
        for location in ["../outside/secret", "sub/../../outside/secret", "sub/../data", secret, "..", "/", "nul\0"] {
            let error = files.external(&entries(&[("location", location)]), 4).unwrap_err();
            assert_eq!(error.kind(), Kind::Invalid, "{location}");
        }
        for missing in ["missing", ".", "sub"] {
            assert!(files.external(&entries(&[("location", missing)]), 4).is_err(), "{missing}");
        }
        let alone = DataFiles::of_bytes(Bytes::new());
        assert!(alone.external(&entries(&[("location", "data")]), 4).is_err());
    }

    #[cfg(unix)]
    #[test]
    fn links_may_not_lead_out() {
        use std::os::unix::fs::symlink;
        let (root, files) = folders();
        let model = root.path().join("model");
        symlink("../outside/secret", model.join("file-link")).unwrap();
        symlink("../outside", model.join("folder-link")).unwrap();
        symlink("sub/data", model.join("inner-link")).unwrap();
        for location in ["file-link", "folder-link/secret"] {
            let error = files.external(&entries(&[("location", location)]), 4).unwrap_err();
            assert!(error.message().contains("leads out"), "{error}");
        }
        assert!(files.external(&entries(&[("location", "inner-link")]), 4).is_ok());
        // A folder that is itself reached through a link is fine.
        symlink("model", root.path().join("alias")).unwrap();
        let alias = DataFiles::of_file(&root.path().join("alias/m.onnx"), Bytes::new());
        assert!(alias.external(&entries(&[("location", "data")]), 4).is_ok());
    }
}

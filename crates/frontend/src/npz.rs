//! NumPy's files of arrays: `.npy` holds one, `.npz` holds named ones in order.
//!
//! NumPy has every element type but bfloat16. Such arrays are written as two opaque bytes per element (`|V2`) and read
//! back only where the caller expects bfloat16; so are the arrays that the `ml_dtypes` package saves (`<V2`). In
//! Python, `array.view(ml_dtypes.bfloat16)` makes them numbers.
//!
//! Texts (`|S5`, `<U5`) are bytes with one axis more, as `Literal::texts` has them; they are written as byte strings where the caller says so.
//!
//! What is written depends on names, literals and compression alone, not on the time or the machine.

use std::fmt;
use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, Write};
use std::path::Path;

use fuseline::error::{Context, Error, Result};
use fuseline::tensor::{DType, Literal, TensorType};
use indexmap::IndexMap;
use zip::result::ZipError;
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipArchive, ZipWriter};

use crate::npy;

/// How far to trust a file.
#[derive(Clone, Copy)]
pub struct ReadOptions<'a> {
    /// limit on the bytes of all arrays together, after decompression
    pub max_bytes: u64,
    /// the element type that the caller expects of an array, if it knows; it decides only that two opaque bytes are
    /// bfloat16, and whether the types agree is left to the caller
    pub expected: &'a dyn Fn(&str) -> Option<DType>,
}

impl Default for ReadOptions<'_> {
    fn default() -> Self {
        ReadOptions { max_bytes: 64 << 30, expected: &|_| None }
    }
}

impl fmt::Debug for ReadOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReadOptions").field("max_bytes", &self.max_bytes).finish_non_exhaustive()
    }
}

/// How the arrays of a `.npz` are stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// as they are
    #[default]
    Stored,
    /// deflated, as by `numpy.savez_compressed`
    Deflated,
}

/// Reads a `.npz` file: its arrays by name, in the order of the file.
pub fn read_npz(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<IndexMap<String, Literal>> {
    let path = path.as_ref();
    open(path).and_then(|file| read_npz_from(BufReader::new(file), options)).at(|| path.to_string_lossy())
}

/// The types of the arrays of a `.npz` file, by name, in the order of the file; none for texts. Elements are not read, so that a
/// caller can refuse what it does not want before it is inflated: a thousand bytes of elements may be one in the file.
pub fn read_npz_types(
    path: impl AsRef<Path>,
    options: &ReadOptions<'_>,
) -> Result<IndexMap<String, Option<TensorType>>> {
    let path = path.as_ref();
    let read = |file| each_array(BufReader::new(file), options, npy::read_type);
    open(path).and_then(read).at(|| path.to_string_lossy())
}

/// Reads the arrays of a `.npz` from anything that can be read and searched.
pub fn read_npz_from(input: impl Read + Seek, options: &ReadOptions<'_>) -> Result<IndexMap<String, Literal>> {
    each_array(input, options, npy::read)
}

/// What is read of each array, by name.
fn each_array<T>(
    input: impl Read + Seek,
    options: &ReadOptions<'_>,
    read: impl Fn(&mut dyn Read, Option<DType>, &mut u64) -> Result<T>,
) -> Result<IndexMap<String, T>> {
    let mut archive = ZipArchive::new(input).map_err(zip_error)?;
    if archive.has_duplicate_names() {
        return Err(Error::invalid("two arrays have the same name"));
    }
    let mut budget = options.max_bytes;
    let mut arrays = IndexMap::new();
    for k in 0..archive.len() {
        let mut entry = archive.by_index(k).map_err(zip_error).at(|| format!("entry {k}"))?;
        let file = entry.name().map_err(zip_error).at(|| format!("entry {k}"))?.into_owned();
        let place = || format!("array \"{}\"", file.escape_debug());
        let name =
            file.strip_suffix(".npy").ok_or_else(|| Error::invalid("the name does not end in .npy")).at(place)?;
        arrays.insert(name.to_string(), read(&mut entry, (options.expected)(name), &mut budget).at(place)?);
    }
    Ok(arrays)
}

/// What an array holds.
#[derive(Clone, Copy, Debug)]
pub enum Array<'a> {
    /// numbers as they are
    Numbers(&'a Literal),
    /// texts, which are bytes with one axis more; they become byte strings
    Texts(&'a Literal),
}

impl<'a> From<&'a Literal> for Array<'a> {
    fn from(literal: &'a Literal) -> Array<'a> {
        Array::Numbers(literal)
    }
}

impl Array<'_> {
    fn literal(&self) -> &Literal {
        match self {
            Array::Numbers(literal) | Array::Texts(literal) => literal,
        }
    }
}

/// Writes a `.npz` file of named arrays, in this order.
pub fn write_npz<'a, A: Into<Array<'a>>>(
    path: impl AsRef<Path>,
    arrays: impl IntoIterator<Item = (&'a str, A)>,
    compression: Compression,
) -> Result<()> {
    let path = path.as_ref();
    let write = || {
        let output = write_npz_to(BufWriter::new(File::create(path).map_err(cannot_write)?), arrays, compression)?;
        output.into_inner().map(drop).map_err(|error| cannot_write(error.into_error()))
    };
    write().at(|| path.to_string_lossy())
}

/// Writes a `.npz` to anything that can be written and searched, and gives it back.
pub fn write_npz_to<'a, W: Write + Seek, A: Into<Array<'a>>>(
    output: W,
    arrays: impl IntoIterator<Item = (&'a str, A)>,
    compression: Compression,
) -> Result<W> {
    let method = match compression {
        Compression::Stored => CompressionMethod::Stored,
        Compression::Deflated => CompressionMethod::Deflated,
    };
    let mut archive = ZipWriter::new(output);
    for (name, array) in arrays {
        let array = array.into();
        let place = || format!("array \"{}\"", name.escape_debug());
        let options = SimpleFileOptions::default()
            .compression_method(method)
            .last_modified_time(DateTime::default())
            .unix_permissions(0o644)
            // With room for the header and for what deflating may add.
            .large_file(array.literal().byte_count() > 0xf000_0000);
        archive.start_file(format!("{name}.npy"), options).map_err(zip_error).at(place)?;
        let written = match array {
            Array::Numbers(literal) => npy::write(&mut archive, literal),
            Array::Texts(literal) => npy::write_texts(&mut archive, literal),
        };
        written.map_err(cannot_write).at(place)?;
    }
    archive.finish().map_err(zip_error)
}

/// Reads a `.npy` file; the caller's expectation is asked for by the name of the file without `.npy`.
pub fn read_npy(path: impl AsRef<Path>, options: &ReadOptions<'_>) -> Result<Literal> {
    let path = path.as_ref();
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    let mut budget = options.max_bytes;
    let read = |file| npy::read(&mut BufReader::new(file), (options.expected)(&name), &mut budget);
    open(path).and_then(read).at(|| path.to_string_lossy())
}

/// Writes a `.npy` file.
pub fn write_npy(path: impl AsRef<Path>, literal: &Literal) -> Result<()> {
    let path = path.as_ref();
    File::create(path)
        .and_then(|mut file| npy::write(&mut file, literal))
        .map_err(cannot_write)
        .at(|| path.to_string_lossy())
}

fn open(path: &Path) -> Result<File> {
    File::open(path).map_err(|error| Error::invalid(format!("cannot open the file: {error}")))
}

fn cannot_write(error: std::io::Error) -> Error {
    Error::invalid(format!("cannot write the file: {error}"))
}

fn zip_error(error: ZipError) -> Error {
    match error {
        ZipError::UnsupportedArchive(what) => Error::unsupported(format!("this kind of zip archive: {what}")),
        ZipError::CompressionMethodNotSupported(code) => {
            Error::unsupported(format!("zip compression method {code} (stored and deflated are supported)"))
        }
        error => Error::invalid(format!("zip archive: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use fuseline::error::Kind;

    use super::*;

    fn arrays() -> IndexMap<String, Literal> {
        let mut arrays = IndexMap::new();
        arrays.insert("z".to_string(), Literal::f32s(&[1.0, -2.0, 0.5]));
        arrays.insert("encoder/3/größe".to_string(), Literal::i64s(&[]));
        for &dtype in DType::ALL {
            arrays.insert(dtype.name().to_string(), Literal::from_ints(dtype, [2, 2], &[0, 1, 1, 0]).unwrap());
        }
        arrays.insert("a".to_string(), Literal::from_ints(DType::U8, [1000, 100], &[7; 100_000]).unwrap());
        arrays
    }

    fn written(arrays: &IndexMap<String, Literal>, compression: Compression) -> Vec<u8> {
        let named = arrays.iter().map(|(name, literal)| (name.as_str(), literal));
        write_npz_to(Cursor::new(Vec::new()), named, compression).unwrap().into_inner()
    }

    fn read(bytes: &[u8], max_bytes: u64) -> Result<IndexMap<String, Literal>> {
        let expected = |name: &str| DType::from_name(name);
        read_npz_from(Cursor::new(bytes), &ReadOptions { max_bytes, expected: &expected })
    }

    /// An archive with entries of any name and content.
    fn archive(entries: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
        for (name, content) in entries {
            let options = SimpleFileOptions::default().compression_method(CompressionMethod::Deflated);
            archive.start_file(*name, options).unwrap();
            archive.write_all(content).unwrap();
        }
        archive.finish().unwrap().into_inner()
    }

    fn same(a: &IndexMap<String, Literal>, b: &IndexMap<String, Literal>) -> bool {
        let pairs = a.iter().zip(b).all(|((n, x), (m, y))| n == m && x.ty() == y.ty() && x.bytes() == y.bytes());
        a.len() == b.len() && pairs
    }

    #[test]
    fn arrays_survive_in_order_and_bytes_repeat() {
        let arrays = arrays();
        for compression in [Compression::Stored, Compression::Deflated] {
            let bytes = written(&arrays, compression);
            assert!(same(&read(&bytes, 1 << 20).unwrap(), &arrays));
            assert_eq!(bytes, written(&arrays, compression));
            assert_eq!(bytes.len() < 50_000, compression == Compression::Deflated);
        }
    }

    #[test]
    fn files_survive() {
        let folder = tempfile::tempdir().unwrap();
        let (npz, npy) = (folder.path().join("a.npz"), folder.path().join("bf16.npy"));
        let arrays = arrays();
        write_npz(&npz, arrays.iter().map(|(n, l)| (n.as_str(), l)), Compression::default()).unwrap();
        let expected = |name: &str| DType::from_name(name);
        let options = ReadOptions { expected: &expected, ..Default::default() };
        assert!(same(&read_npz(&npz, &options).unwrap(), &arrays));
        write_npy(&npy, &arrays["bf16"]).unwrap();
        assert_eq!(read_npy(&npy, &options).unwrap(), arrays["bf16"]);
        assert_eq!(read_npy(&npy, &ReadOptions::default()).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(read_npz(&npy, &options).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read_npy(folder.path().join("missing"), &options).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn equal_names_are_refused() {
        let literal = Literal::i64s(&[1]);
        let twice = [("x", &literal), ("x", &literal)];
        let error = write_npz_to(Cursor::new(Vec::new()), twice, Compression::Stored).unwrap_err();
        assert_eq!(error.kind(), Kind::Invalid);
        // Written with two names of one length, and then made equal.
        let mut bytes = written(
            &[("x", &literal), ("y", &literal)].map(|(n, l)| (n.into(), l.clone())).into(),
            Compression::Stored,
        );
        for k in 0..bytes.len() - 5 {
            if &bytes[k..k + 5] == b"y.npy" {
                bytes[k] = b'x';
            }
        }
        assert_eq!(read(&bytes, 1 << 20).unwrap_err().message(), "two arrays have the same name");
    }

    #[test]
    fn bombs_are_defused() {
        let mut array = Vec::new();
        npy::write(&mut array, &Literal::from_ints(DType::U8, [1 << 20], &vec![0; 1 << 20]).unwrap()).unwrap();
        let bomb = archive(&[("a.npy", &array), ("b.npy", &array)]);
        assert!(bomb.len() < 10_000);
        assert!(read(&bomb, 3 << 20).is_ok());
        // The limit is for all arrays together.
        let error = read(&bomb, (2 << 20) - 1).unwrap_err();
        assert_eq!((error.kind(), error.path()), (Kind::Limit, &["array \"b.npy\"".to_string()][..]));
        // A megabyte behind an array that declares one element is not read.
        let tail =
            [&array[..0], b"\x93NUMPY\x01\0\x3a\0{'descr': '|u1', 'fortran_order': False, 'shape': (1,), }\n ", &array]
                .concat();
        let error = read(&archive(&[("a.npy", &tail)]), 1000).unwrap_err();
        assert!(error.message().contains("goes on"), "{error}");
    }

    #[test]
    fn entries_that_lie_are_refused() {
        let huge = b"\x93NUMPY\x01\0\x47\0{'descr': '|u1', 'fortran_order': False, 'shape': (34359738368, 1, 1)}";
        let mut huge = huge.to_vec();
        huge[8] = (huge.len() - 10) as u8;
        let error = read(&archive(&[("a.npy", &huge)]), u64::MAX).unwrap_err();
        assert_eq!(
            error.to_string(),
            "invalid input: array \"a.npy\": 0 bytes of data where the header declares 34359738368"
        );
        assert_eq!(read(&archive(&[("readme.txt", b"hello")]), 1000).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read(b"not a zip archive", 1000).unwrap_err().kind(), Kind::Invalid);
        assert_eq!(read(b"", 1000).unwrap_err().kind(), Kind::Invalid);
    }

    #[test]
    fn types_are_known_before_elements_are_read() {
        let mut huge = b"\x93NUMPY\x01\0\0\0{'descr': '<f4', 'fortran_order': False, 'shape': (524288, 1024)}".to_vec();
        huge[8] = (huge.len() - 10) as u8;
        let mut texts = b"\x93NUMPY\x01\0\0\0{'descr': '<U5', 'fortran_order': False, 'shape': (2,)}".to_vec();
        texts[8] = (texts.len() - 10) as u8;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.npz");
        std::fs::write(&path, archive(&[("x.npy", &huge), ("t.npy", &texts)])).unwrap();
        // There is not one element.
        let types = read_npz_types(&path, &ReadOptions { max_bytes: 1000, ..ReadOptions::default() }).unwrap();
        assert_eq!(types["x"].as_ref().unwrap().to_string(), "f32[524288, 1024]");
        assert_eq!(types["t"], None);
    }

    #[test]
    fn damaged_archives_do_no_harm() {
        let literal = Literal::from_ints(DType::I16, [4], &[1, 2, 3, 4]).unwrap();
        let whole = written(&[("x".to_string(), literal.clone())].into(), Compression::Deflated);
        for end in 0..whole.len() {
            assert!(read(&whole[..end], 1 << 20).is_err(), "{end}");
        }
        for (k, byte) in (0..whole.len()).flat_map(|k| (0..=255u8).step_by(5).map(move |byte| (k, byte))) {
            let mut damaged = whole.clone();
            damaged[k] = byte;
            // The checksum catches damage to the data.
            if let Some(got) = read(&damaged, 1 << 20).ok().and_then(|arrays| arrays.get("x").cloned()) {
                assert_eq!(got, literal, "byte {k} as {byte}");
            }
        }
    }
}

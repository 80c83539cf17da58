//! Machine code on disk, so that a program starts fast the second time.
//!
//! An entry is a file that holds all of what it was made from beside the machine code, and a sum over both: what is damaged or belongs to
//! something else is not there. Files are written beside their place and renamed.

use std::io::Write as _;
use std::path::PathBuf;

/// A folder of machine code.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
}

const MAGIC: &[u8; 8] = b"fuseline";

impl Cache {
    /// The cache in a folder, which is made when something is put there.
    pub fn in_folder(folder: PathBuf) -> Cache {
        Cache { folder }
    }

    /// What was made from a text, if it is there and whole.
    pub fn get(&self, made_from: &str) -> Option<Vec<u8>> {
        let bytes = std::fs::read(self.path(made_from)).ok()?;
        let rest = bytes.strip_prefix(MAGIC)?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        if u64::from_le_bytes(*sum) != hash(rest) {
            return None;
        }
        let (length, rest) = rest.split_first_chunk::<8>()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (text, code) = rest.split_at_checked(length)?;
        (text == made_from.as_bytes()).then(|| code.to_vec())
    }

    /// Puts what was made from a text there. That may fail, and then it is made again another time.
    pub fn put(&self, made_from: &str, code: &[u8]) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.folder)?;
        let mut rest = (made_from.len() as u64).to_le_bytes().to_vec();
        rest.extend_from_slice(made_from.as_bytes());
        rest.extend_from_slice(code);
        let path = self.path(made_from);
        let beside = path.with_extension(format!("{}", std::process::id()));
        let mut file = std::fs::File::create(&beside)?;
        file.write_all(MAGIC)?;
        file.write_all(&hash(&rest).to_le_bytes())?;
        file.write_all(&rest)?;
        file.sync_all()?;
        drop(file);
        std::fs::rename(beside, path)
    }

    fn path(&self, made_from: &str) -> PathBuf {
        self.folder.join(format!("{:016x}.cubin", hash(made_from.as_bytes())))
    }
}

/// FNV-1a: not to withstand malice, but to find a file and to notice damage.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_is_there_unless_it_is_damaged_or_of_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::in_folder(folder.path().join("deeper"));
        assert_eq!(cache.get("one"), None);
        cache.put("one", b"code").unwrap();
        assert_eq!(cache.get("one"), Some(b"code".to_vec()));
        assert_eq!(cache.get("two"), None);
        let path = cache.path("one");
        let whole = std::fs::read(&path).unwrap();
        for damaged in [&whole[..whole.len() - 1], &whole[..3], b"", &[&whole[..], b"x"].concat()] {
            std::fs::write(&path, damaged).unwrap();
            assert_eq!(cache.get("one"), None);
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(cache.get("one"), None, "byte {at}");
        }
        // The file of one text under the name of another.
        std::fs::rename(&path, cache.path("two")).unwrap();
        assert_eq!(cache.get("two"), None);
    }
}

//! Texts as tensors of bytes: the last axis holds UTF-8, and zeros behind the end of each text.

use bytes::Bytes;

use super::{DType, Literal};
use crate::error::{Error, Result};

/// Bytes of texts that are as wide as the longest one of them.
const MOST_BYTES: usize = 1 << 28;

impl Literal {
    /// The bytes of one text.
    pub fn text(text: &str) -> Literal {
        let bytes = Bytes::copy_from_slice(text.as_bytes());
        Literal::new(DType::U8, [text.len()], bytes).expect("as many bytes as the size says")
    }

    /// A tensor of texts: these sizes, and one more for their bytes. A text that ends with a zero is refused, since nothing would tell
    /// that zero from what fills up the row.
    pub fn texts(sizes: impl Into<Vec<usize>>, texts: &[impl AsRef<[u8]>]) -> Result<Literal> {
        let mut sizes = sizes.into();
        let width = texts.iter().map(|text| text.as_ref().len()).max().unwrap_or(0);
        let total = texts.len().checked_mul(width).filter(|total| *total <= MOST_BYTES).ok_or_else(|| {
            let count = texts.len();
            Error::limit(format!("{count} texts of up to {width} bytes (the limit is {MOST_BYTES} bytes in all)"))
        })?;
        let mut bytes = Vec::with_capacity(total);
        for (k, text) in texts.iter().enumerate() {
            let text = text.as_ref();
            if text.last() == Some(&0) {
                return Err(Error::unsupported(format!("text {k}, which ends with a zero byte")));
            }
            std::str::from_utf8(text).map_err(|_| Error::invalid(format!("text {k} is not UTF-8")))?;
            bytes.extend_from_slice(text);
            bytes.resize((k + 1) * width, 0);
        }
        sizes.push(width);
        Literal::new(DType::U8, sizes, bytes)
    }

    /// The texts of a tensor of bytes, row by row.
    pub fn to_texts(&self) -> Result<Vec<String>> {
        let Some((width, leading)) = self.sizes().split_last().filter(|_| self.dtype() == DType::U8) else {
            return Err(Error::invalid(format!("{} are no texts", self.ty())));
        };
        let (bytes, count) = (self.bytes(), leading.iter().product::<usize>());
        let text = |k: usize| {
            let row = &bytes[k * width..(k + 1) * width];
            let end = row.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            let text = std::str::from_utf8(&row[..end]);
            text.map(str::to_string).map_err(|_| Error::invalid(format!("text {k} is not UTF-8")))
        };
        (0..count).map(text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Kind;

    #[test]
    fn texts_come_back() {
        let texts = ["", "a", "äöü", "x y"];
        let literal = Literal::texts([2, 2], &texts).unwrap();
        assert_eq!(literal.sizes(), [2, 2, 6]);
        assert_eq!(literal.to_texts().unwrap(), texts);
        assert_eq!(Literal::texts([2], &["", ""]).unwrap().to_texts().unwrap(), ["", ""]);
        assert_eq!(Literal::texts([0], &[""; 0]).unwrap().sizes(), [0, 0]);
        assert_eq!(Literal::text("ab").sizes(), [2]);
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert_eq!(Literal::texts([1], &["a\0"]).unwrap_err().kind(), Kind::Unsupported);
        assert_eq!(Literal::texts([1], &[&[0xff][..]]).unwrap_err().kind(), Kind::Invalid);
        assert!(Literal::texts([2], &["a"]).is_err() && Literal::i64s(&[1]).to_texts().is_err());
        let long = "x".repeat(1 << 15);
        let mut many = vec![""; 1 << 14];
        many.push(&long);
        assert_eq!(Literal::texts([many.len()], &many).unwrap_err().kind(), Kind::Limit);
    }
}

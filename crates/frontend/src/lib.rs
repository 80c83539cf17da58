//! Front ends: file formats in, graphs out.

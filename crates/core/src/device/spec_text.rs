//! The text form of device specs: sections of `key = value`, comments after `#`.
//!
//! Sizes may be written with Ki, Mi or Gi. Every key must be there, once, and no other: a misspelt key is an error by line.
//! What is printed can be read back, and gives the same spec.

use std::fmt;
use std::str::FromStr;

use super::spec::{Costs, DeviceSpec, Host, Limits, Machine, MemoryLevel, Rates, Scope, Skeleton};
use crate::error::{Error, Result};
use crate::tensor::DType;
use crate::tile::Tile;

const MEMORY_KEYS: [&str; 8] = ["bytes", "scope", "keeps", "gbps", "core_gbps", "reach", "line", "in_flight"];

impl DeviceSpec {
    /// Reads a spec from its text.
    pub fn parse(text: &str) -> Result<DeviceSpec> {
        let mut sections = Sections::read(text)?;
        let mut head = sections.take("")?;
        let spec = DeviceSpec {
            name: head.text("name")?,
            doc: head.text("doc")?,
            kind: head.word("kind", Machine::from_name, Machine::ALL.iter().map(|m| m.name()))?,
            dtypes: head.words("dtypes", DType::from_name, DType::ALL.iter().map(|d| d.name()))?,
            skeletons: head.words("skeletons", Skeleton::from_name, Skeleton::ALL.iter().map(|s| s.name()))?,
            limits: Limits::from_values(&sections.take("limits")?.sizes(Limits::KEYS)?),
            costs: Costs::from_values(&sections.take("costs")?.numbers(Costs::KEYS)?),
            memory: sections.take_memory()?,
            vector: sections.take("vector")?.rates()?,
            matrix: sections.take("matrix")?.rates()?,
            special: sections.take("special")?.rates()?,
            product: sections.take_if_there("product").map_or(Ok(Rates::none()), Section::reached)?,
            tiles: sections.take("tiles")?.tiles()?,
            host: Host::from_values(&sections.take("host")?.numbers(Host::KEYS)?),
        };
        head.finish()?;
        sections.finish()?;
        check(&spec)?;
        Ok(spec)
    }
}

/// What cannot be said of one line alone.
fn check(spec: &DeviceSpec) -> Result<()> {
    if spec.memory.len() < 2 {
        return Err(Error::invalid("a device has at least two memories: [memory l1] and, farther, [memory dram]"));
    }
    for (section, rates) in [("vector", &spec.vector), ("special", &spec.special)] {
        if rates.peak(DType::F32).is_none() {
            return Err(Error::invalid(format!("[{section}] has no f32")));
        }
    }
    let has_tiles = spec.tiles.iter().any(|(dtype, tiles)| *dtype == DType::F32 && !tiles.is_empty());
    if has_tiles { Ok(()) } else { Err(Error::invalid("[tiles] has no f32")) }
}

/// A value with its key and its place.
struct Entry<'t> {
    line: usize,
    key: &'t str,
    value: &'t str,
}

impl Entry<'_> {
    fn error(&self, wanted: &str) -> Error {
        Error::invalid(format!("line {}: {} is {wanted}, not \"{}\"", self.line, self.key, self.value))
    }

    fn size(&self) -> Result<usize> {
        let digits = self.value.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let factor = match &self.value[digits.len()..] {
            "" => Some(1),
            "Ki" => Some(1 << 10),
            "Mi" => Some(1 << 20),
            "Gi" => Some(1 << 30),
            _ => None,
        };
        let size = digits.parse::<usize>().ok().zip(factor).and_then(|(n, factor)| n.checked_mul(factor));
        // Sizes are computed with as floating-point numbers: beyond 2^53 they would not be what was written.
        size.filter(|n| *n <= 1 << 53).ok_or_else(|| self.error("a whole number such as 132 or 48Ki"))
    }

    fn number(&self) -> Result<f64> {
        let number = f64::from_str(self.value).ok();
        number.filter(|x| x.is_finite() && *x >= 0.0).ok_or_else(|| self.error("a number such as 1.5"))
    }

    fn positive(&self) -> Result<f64> {
        let number = self.number().ok();
        number.filter(|x| *x > 0.0).ok_or_else(|| self.error("a number above zero"))
    }

    fn share(&self) -> Result<f64> {
        let number = self.number().ok();
        number.filter(|x| *x > 0.0 && *x <= 1.0).ok_or_else(|| self.error("a number above 0 and up to 1"))
    }

    fn flag(&self) -> Result<bool> {
        match self.value {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => Err(self.error("yes or no")),
        }
    }

    fn word<T>(&self, from_name: impl Fn(&str) -> Option<T>, names: impl Iterator<Item = &'static str>) -> Result<T> {
        from_name(self.value).ok_or_else(|| self.error(&format!("one of {}", names.collect::<Vec<_>>().join(", "))))
    }

    fn tile(&self, text: &str) -> Result<Tile> {
        let sizes: Vec<u32> = text.trim().split('x').filter_map(|n| n.parse().ok()).collect();
        match sizes[..] {
            [rows, columns, depth] if sizes.iter().all(|n| (1..1 << 20).contains(n)) => {
                Ok(Tile { rows, columns, depth })
            }
            _ => Err(self.error("rows x columns x depth such as 128x256x64")),
        }
    }
}

/// The keys of one section.
struct Section<'t> {
    line: usize,
    title: &'t str,
    entries: Vec<Entry<'t>>,
}

impl<'t> Section<'t> {
    fn place(&self) -> String {
        if self.title.is_empty() { "the head".into() } else { format!("[{}]", self.title) }
    }

    fn take(&mut self, key: &str) -> Result<Entry<'t>> {
        let at = self.entries.iter().position(|e| e.key == key);
        match at {
            Some(at) => Ok(self.entries.remove(at)),
            None => Err(Error::invalid(format!("line {}: {} has no {key}", self.line, self.place()))),
        }
    }

    fn text(&mut self, key: &str) -> Result<String> {
        let entry = self.take(key)?;
        if entry.value.is_empty() { Err(entry.error("some text")) } else { Ok(entry.value.to_string()) }
    }

    fn word<T>(
        &mut self,
        key: &str,
        from_name: impl Fn(&str) -> Option<T>,
        names: impl Iterator<Item = &'static str>,
    ) -> Result<T> {
        self.take(key)?.word(from_name, names)
    }

    fn words<T: PartialEq>(
        &mut self,
        key: &str,
        from_name: impl Fn(&str) -> Option<T>,
        names: impl Iterator<Item = &'static str> + Clone,
    ) -> Result<Vec<T>> {
        let entry = self.take(key)?;
        let mut words = Vec::new();
        for value in entry.value.split(',').map(str::trim) {
            let word = Entry { value, ..entry }.word(&from_name, names.clone())?;
            if words.contains(&word) {
                return Err(Error::invalid(format!("line {}: {key} has {value} twice", entry.line)));
            }
            words.push(word);
        }
        Ok(words)
    }

    fn sizes(mut self, keys: &[&str]) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        for key in keys {
            let entry = self.take(key)?;
            let size = entry.size()?;
            if size == 0 {
                return Err(entry.error("above zero"));
            }
            values.push(size as f64);
        }
        self.finish()?;
        Ok(values)
    }

    fn numbers(mut self, keys: &[&str]) -> Result<Vec<f64>> {
        let mut values = Vec::new();
        for key in keys {
            let entry = self.take(key)?;
            // What is paid by the piece may be free; what is divided by may not be zero.
            values.push(if key.ends_with("_us") { entry.number()? } else { entry.positive()? });
        }
        self.finish()?;
        Ok(values)
    }

    fn memory(mut self, name: &str) -> Result<MemoryLevel> {
        let level = MemoryLevel {
            name: name.to_string(),
            bytes: self.take("bytes")?.size()?,
            scope: self.word("scope", Scope::from_name, Scope::ALL.iter().map(|s| s.name()))?,
            keeps: self.take("keeps")?.flag()?,
            gbps: self.take("gbps")?.positive()?,
            core_gbps: self.take("core_gbps")?.positive()?,
            reach: self.take("reach")?.share()?,
            line: self.take("line")?.size()?,
            in_flight: self.take("in_flight")?.size()?,
        };
        self.finish()?;
        Ok(level)
    }

    fn rates(mut self) -> Result<Rates> {
        let reach = self.take("reach")?.share()?;
        let mut rows = Vec::new();
        for entry in &self.entries {
            rows.push((entry.dtype()?, entry.positive()?));
        }
        Ok(Rates { reach, rows })
    }

    /// Rates that are no part of a peak.
    fn reached(self) -> Result<Rates> {
        let rows = self.entries.iter().map(|entry| Ok((entry.dtype()?, entry.positive()?)));
        Ok(Rates { reach: 1.0, rows: rows.collect::<Result<_>>()? })
    }

    fn tiles(self) -> Result<Vec<(DType, Vec<Tile>)>> {
        let mut rows = Vec::new();
        for entry in &self.entries {
            let tiles = entry.value.split(',').map(|text| entry.tile(text));
            rows.push((entry.dtype()?, tiles.collect::<Result<_>>()?));
        }
        Ok(rows)
    }

    fn finish(&self) -> Result<()> {
        match self.entries.first() {
            Some(Entry { line, key, .. }) => {
                Err(Error::invalid(format!("line {line}: {} knows no key {key}", self.place())))
            }
            None => Ok(()),
        }
    }
}

impl Entry<'_> {
    /// The key as an element type.
    fn dtype(&self) -> Result<DType> {
        let unknown = || Error::invalid(format!("line {}: {} is no element type", self.line, self.key));
        DType::from_name(self.key).ok_or_else(unknown)
    }
}

struct Sections<'t>(Vec<Section<'t>>);

impl<'t> Sections<'t> {
    fn read(text: &'t str) -> Result<Sections<'t>> {
        let mut sections = vec![Section { line: 1, title: "", entries: Vec::new() }];
        for (at, line) in text.lines().enumerate() {
            let number = at + 1;
            let line = line.split('#').next().unwrap_or_default().trim();
            if line.is_empty() {
                continue;
            }
            if let Some(title) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
                let title = title.trim();
                if sections.iter().any(|s| s.title == title) {
                    return Err(Error::invalid(format!("line {number}: [{title}] is there twice")));
                }
                sections.push(Section { line: number, title, entries: Vec::new() });
                continue;
            }
            let (key, value) = line.split_once('=').ok_or_else(|| {
                Error::invalid(format!("line {number}: wanted key = value or [section], not \"{line}\""))
            })?;
            let (key, value) = (key.trim(), value.trim());
            let section = sections.last_mut().expect("the head comes first");
            if section.entries.iter().any(|e| e.key == key) {
                return Err(Error::invalid(format!("line {number}: {} has {key} twice", section.place())));
            }
            section.entries.push(Entry { line: number, key, value });
        }
        Ok(Sections(sections))
    }

    fn take(&mut self, title: &str) -> Result<Section<'t>> {
        let at = self.0.iter().position(|s| s.title == title);
        at.map(|at| self.0.remove(at)).ok_or_else(|| Error::invalid(format!("the section [{title}] is missing")))
    }

    /// The same of a section that may be missing: what was not measured is not told.
    fn take_if_there(&mut self, title: &str) -> Option<Section<'t>> {
        let at = self.0.iter().position(|s| s.title == title)?;
        Some(self.0.remove(at))
    }

    /// The sections `[memory NAME]`, in the order of the text.
    fn take_memory(&mut self) -> Result<Vec<MemoryLevel>> {
        let (memory, others) = self.0.drain(..).partition(|s| s.title.starts_with("memory "));
        self.0 = others;
        let level = |section: Section| {
            let name = section.title["memory ".len()..].trim().to_string();
            section.memory(&name)
        };
        Vec::into_iter(memory).map(level).collect()
    }

    fn finish(&self) -> Result<()> {
        let unknown = |s: &Section| Error::invalid(format!("line {}: the section [{}] is unknown", s.line, s.title));
        self.0.first().map_or(Ok(()), |section| Err(unknown(section)))
    }
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = |names: Vec<&str>| names.join(", ");
        writeln!(f, "name = {}\ndoc = {}\nkind = {}", self.name, self.doc, self.kind.name())?;
        writeln!(f, "dtypes = {}", list(self.dtypes.iter().map(|d| d.name()).collect()))?;
        writeln!(f, "skeletons = {}", list(self.skeletons.iter().map(|s| s.name()).collect()))?;
        writeln!(f, "\n[limits]")?;
        for (key, value) in Limits::KEYS.iter().zip(self.limits.values()) {
            writeln!(f, "{key} = {}", size_text(value as usize))?;
        }
        write_numbers(f, "costs", Costs::KEYS, &self.costs.values())?;
        for level in &self.memory {
            writeln!(f, "\n[memory {}]", level.name)?;
            let keeps = if level.keeps { "yes" } else { "no" };
            let rates = [level.gbps, level.core_gbps, level.reach].map(|x| x.to_string());
            let sizes = [level.bytes, level.line, level.in_flight].map(size_text);
            let values = [&sizes[0], level.scope.name(), keeps, &rates[0], &rates[1], &rates[2], &sizes[1], &sizes[2]];
            MEMORY_KEYS.iter().zip(values).try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))?;
        }
        for (title, rates) in [("vector", &self.vector), ("matrix", &self.matrix), ("special", &self.special)] {
            writeln!(f, "\n[{title}]\nreach = {}", rates.reach)?;
            rates.rows.iter().try_for_each(|(dtype, rate)| writeln!(f, "{} = {rate}", dtype.name()))?;
        }
        if !self.product.rows.is_empty() {
            writeln!(f, "\n[product]")?;
            self.product.rows.iter().try_for_each(|(dtype, rate)| writeln!(f, "{} = {rate}", dtype.name()))?;
        }
        writeln!(f, "\n[tiles]")?;
        for (dtype, tiles) in &self.tiles {
            let tiles: Vec<String> = tiles.iter().map(|t| format!("{}x{}x{}", t.rows, t.columns, t.depth)).collect();
            writeln!(f, "{} = {}", dtype.name(), tiles.join(", "))?;
        }
        write_numbers(f, "host", Host::KEYS, &self.host.values())
    }
}

fn write_numbers(f: &mut fmt::Formatter<'_>, title: &str, keys: &[&str], values: &[f64]) -> fmt::Result {
    writeln!(f, "\n[{title}]")?;
    keys.iter().zip(values).try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))
}

/// A size in the largest binary unit that divides it.
fn size_text(size: usize) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units.iter().find(|(bits, _)| size > 0 && size.is_multiple_of(1 << bits));
    unit.map_or_else(|| size.to_string(), |(bits, name)| format!("{}{name}", size >> bits))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(from: &str, to: &str) -> String {
        let text = DeviceSpec::find("cpu").unwrap().to_string();
        assert!(text.contains(from), "{from}");
        DeviceSpec::parse(&text.replacen(from, to, 1)).unwrap_err().message().to_string()
    }

    #[test]
    fn what_is_wrong_is_told_by_line() {
        assert_eq!(
            refused("cores = 2", "cores = two"),
            "line 8: cores is a whole number such as 132 or 48Ki, not \"two\""
        );
        assert_eq!(refused("cores = 2", "cores = 0"), "line 8: cores is above zero, not \"0\"");
        assert_eq!(refused("cores = 2", "kernels = 2"), "line 7: [limits] has no cores");
        assert_eq!(refused("cores = 2", "cores = 2\ncores = 3"), "line 9: [limits] has cores twice");
        assert_eq!(refused("cores = 2", "cores = 2\nspin = 1"), "line 9: [limits] knows no key spin");
        assert_eq!(refused("cores = 2", "cores"), "line 8: wanted key = value or [section], not \"cores\"");
        assert_eq!(refused("kind = cpu", "kind = tpu"), "line 3: kind is one of cpu, gpu, not \"tpu\"");
        assert_eq!(refused("dtypes = f32", "dtypes = f33").split(',').next(), Some("line 4: dtypes is one of bool"));
        assert_eq!(refused("dtypes = f32", "dtypes = f32, f32"), "line 4: dtypes has f32 twice");
        assert_eq!(refused("keeps = no", "keeps = maybe"), "line 32: keeps is yes or no, not \"maybe\"");
        assert_eq!(
            refused("reach = 0.8", "reach = 1.2"),
            "line 35: reach is a number above 0 and up to 1, not \"1.2\""
        );
        assert_eq!(refused("gbps = 714", "gbps = 0"), "line 33: gbps is a number above zero, not \"0\"");
        assert_eq!(refused("[tiles]", "[shapes]"), "the section [tiles] is missing");
        assert!(refused("[tiles]", "[extra]\n[tiles]").ends_with("the section [extra] is unknown"));
        assert!(refused("[host]", "[costs]").ends_with("[costs] is there twice"));
        assert!(refused("f32 = 6x64x256", "f32 = 6x64").contains("rows x columns x depth"));
        assert!(refused("f32 = 357", "f64x = 357").ends_with(": f64x is no element type"));
        assert_eq!(refused("f32 = 357", "f16 = 357"), "[vector] has no f32");
    }

    #[test]
    fn sizes_are_printed_in_the_largest_unit() {
        assert_eq!(["0", "1000", "48Ki", "3Mi", "64Gi"], [0, 1000, 48 << 10, 3 << 20, 64 << 30].map(size_text));
    }
}

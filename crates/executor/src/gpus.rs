//! The GPUs of an executor, by the names that it was given them under, and the
//! variables that tell a task which of them are its own.
//!
//! NVIDIA's runtime reads `CUDA_VISIBLE_DEVICES`, AMD's `ROCR_VISIBLE_DEVICES`.
//! Above the latter, HIP numbers what is left from 0 and selects from that by
//! `HIP_VISIBLE_DEVICES` or, without it, by `CUDA_VISIBLE_DEVICES` ("GPU
//! isolation techniques" in AMD's ROCm documentation).

const CUDA: &str = "CUDA_VISIBLE_DEVICES";
const ROCR: &str = "ROCR_VISIBLE_DEVICES";
const HIP: &str = "HIP_VISIBLE_DEVICES";

/// A variable of a task's environment, and its value.
type Variable = (Vec<u8>, Vec<u8>);

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Gpus {
    count: u32,
    /// Variables that select GPUs, and the names that this executor has in
    /// each.
    variables: Vec<(&'static str, Vec<String>)>,
    /// HIP numbers what `ROCR_VISIBLE_DEVICES` leaves.
    counts_anew: bool,
}

impl Gpus {
    /// The GPUs that an executor offers, as its environment names them.
    pub(super) fn new(count: u32, variable: impl Fn(&str) -> Option<String>) -> Gpus {
        let names = |name: &'static str| {
            let list = variable(name)?;
            let names = list.split(',').map(str::trim).filter(|gpu| !gpu.is_empty());
            Some((name, names.map(str::to_owned).collect()))
        };
        let mut variables: Vec<_> = [CUDA, ROCR].into_iter().filter_map(names).collect();
        let counts_anew = variables.iter().any(|(name, _)| *name == ROCR);
        if !counts_anew {
            variables.extend(names(HIP));
        }
        if variables.is_empty() {
            variables.push((CUDA, Vec::new()));
        }
        Gpus { count, variables, counts_anew }
    }

    /// Whether there are any.
    pub(super) fn are_offered(&self) -> bool {
        self.count > 0
    }

    /// The environment of a task that has these GPUs; empty if the executor
    /// offers none.
    pub(super) fn environment(&self, gpus: &[u32]) -> Vec<Variable> {
        if !self.are_offered() {
            return Vec::new();
        }
        let set = |name: &str, values: Vec<String>| -> Variable {
            (name.as_bytes().to_vec(), values.join(",").into_bytes())
        };
        let name = |names: &[String], gpu: &u32| {
            names.get(*gpu as usize).cloned().unwrap_or_else(|| gpu.to_string())
        };
        let mut environment: Vec<Variable> = self
            .variables
            .iter()
            .map(|(variable, names)| {
                set(variable, gpus.iter().map(|gpu| name(names, gpu)).collect())
            })
            .collect();
        if self.counts_anew {
            environment.push(set(HIP, (0..gpus.len()).map(|at| at.to_string()).collect()));
        }
        environment
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(given: &[(&str, &str)], gpus: &[u32], expected: &[(&str, &str)]) {
        let look = |name: &str| {
            given.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let set = Gpus::new(4, look).environment(gpus);
        let set: Vec<(String, String)> =
            set.into_iter().map(|(name, value)| (text(name), text(value))).collect();
        let expected: Vec<(String, String)> = expected
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect();
        assert_eq!(set, expected);
    }

    #[test]
    fn a_task_has_its_own_gpus_whoever_made_them() {
        check(&[], &[1, 3], &[(CUDA, "1,3")]);
        check(&[(CUDA, "4,GPU-1a, 6 ,7")], &[1, 2], &[(CUDA, "GPU-1a,6")]);
        check(&[(ROCR, "4,5,6,7")], &[1, 2], &[(ROCR, "5,6"), (HIP, "0,1")]);
        check(&[(HIP, "2,3")], &[1], &[(HIP, "3")]);
        // Slurm sets both where it does not know who made them. HIP looks at
        // its own variable first.
        check(
            &[(CUDA, "2,3"), (ROCR, "2,3"), (HIP, "0,1")],
            &[1],
            &[(CUDA, "3"), (ROCR, "3"), (HIP, "0")],
        );
    }

    #[test]
    fn a_task_that_claims_none_sees_none() {
        check(&[(ROCR, "0,1")], &[], &[(ROCR, ""), (HIP, "")]);
        let none = Gpus::new(0, |_| Some("0,1".to_owned()));
        assert!(none.environment(&[]).is_empty());
    }
}

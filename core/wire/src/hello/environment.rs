//! The client's runtime environment, detected from environment variables.

/// A function-as-a-service platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Faas {
    /// AWS Lambda.
    AwsLambda,
    /// Azure Functions.
    AzureFunctions,
    /// Google Cloud Functions.
    GcpFunctions,
    /// Vercel.
    Vercel,
}

impl Faas {
    /// Its name in client metadata.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AwsLambda => "aws.lambda",
            Self::AzureFunctions => "azure.func",
            Self::GcpFunctions => "gcp.func",
            Self::Vercel => "vercel",
        }
    }
}

/// Maximum length of a region in bytes; a longer one is omitted.
const REGION_BYTES_MAX: usize = 64;

/// The client's runtime environment.
///
/// Read from environment variables by [`Environment::detect`]; the default is an environment
/// without special properties.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Environment {
    /// The function-as-a-service platform; `None` also if the variables of several platforms are
    /// set.
    pub faas: Option<Faas>,
    /// Time limit of an invocation, in seconds.
    pub timeout_sec: Option<i32>,
    /// Memory of an invocation, in megabytes.
    pub memory_mb: Option<i32>,
    /// The region of the platform.
    pub region: Option<heapless::String<REGION_BYTES_MAX>>,
    /// Whether Kubernetes runs the container.
    pub is_kubernetes: bool,
    /// Whether Docker runs the container. Determined by the file `/.dockerenv`, so a caller with a
    /// file system sets it.
    pub is_docker: bool,
}

impl Environment {
    /// Detects the environment. `lookup` returns the value of a variable; an empty value counts as
    /// unset.
    ///
    /// Source: MongoDB Handshake, "client.env".
    pub fn detect<V: AsRef<str>>(mut lookup: impl FnMut(&'static str) -> Option<V>) -> Self {
        let mut value = |name| lookup(name).filter(|value| !value.as_ref().is_empty());
        let execution = value("AWS_EXECUTION_ENV");
        let is_lambda = execution.is_some_and(|value| value.as_ref().starts_with("AWS_Lambda_"))
            || value("AWS_LAMBDA_RUNTIME_API").is_some();
        let is_vercel = value("VERCEL").is_some();
        let is_azure = value("FUNCTIONS_WORKER_RUNTIME").is_some();
        let is_gcp = value("K_SERVICE").is_some() || value("FUNCTION_NAME").is_some();
        // Vercel runs on Lambda and sets its variables too.
        let faas = match (is_lambda || is_vercel, is_azure, is_gcp) {
            (true, false, false) if is_vercel => Some(Faas::Vercel),
            (true, false, false) => Some(Faas::AwsLambda),
            (false, true, false) => Some(Faas::AzureFunctions),
            (false, false, true) => Some(Faas::GcpFunctions),
            _ => None,
        };
        let (timeout, memory, region) = match faas {
            Some(Faas::AwsLambda) => (None, value("AWS_LAMBDA_FUNCTION_MEMORY_SIZE"), value("AWS_REGION")),
            Some(Faas::GcpFunctions) => {
                (value("FUNCTION_TIMEOUT_SEC"), value("FUNCTION_MEMORY_MB"), value("FUNCTION_REGION"))
            }
            Some(Faas::Vercel) => (None, None, value("VERCEL_REGION")),
            Some(Faas::AzureFunctions) | None => (None, None, None),
        };
        let number = |value: Option<V>| value.and_then(|value| value.as_ref().parse().ok());
        Self {
            faas,
            timeout_sec: number(timeout),
            memory_mb: number(memory),
            region: region.and_then(|value| heapless::String::try_from(value.as_ref()).ok()),
            is_kubernetes: value("KUBERNETES_SERVICE_HOST").is_some(),
            is_docker: false,
        }
    }

    /// Whether the client runs as a function. Monitors then poll instead of streaming, unless
    /// configured otherwise.
    #[must_use]
    pub const fn is_faas(&self) -> bool {
        self.faas.is_some()
    }

    /// Whether there is nothing to report.
    pub(super) const fn is_empty(&self) -> bool {
        self.faas.is_none() && !self.is_kubernetes && !self.is_docker
    }
}

"""Published traces and their download addresses: the table of ``dagsim trace fetch``.

Sizes and checksums come from the publishers or were measured on copies of the published bytes. If a
value is ``None``, it is unknown, and the command states that it cannot verify the file. Some files
are in a repository. Their address either contains the commit at which they were measured, or refers
to the newest version (``HEAD``), which is verified by its checksum. The Parallel Workloads Archive
publishes no checksums, so the checksums of its logs come from a third party's lock file.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import unquote, urlsplit

from dagsim.errors import UnknownName
from dagsim.model.arithmetic import whole_sum
from dagsim.spelling import choices


@dataclass(frozen=True, slots=True)
class Remote:
    """A file on a publisher's server, with its SHA-256 checksum in hexadecimal."""

    url: str
    bytes: int | None = None
    sha256: str | None = None
    # path below the trace's own folder, unless it is simply the last part of the URL
    path: str = ""

    @property
    def name(self) -> str:
        """The path of the file below the trace's own folder."""
        return self.path or PurePosixPath(unquote(urlsplit(self.url).path)).name


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """A published trace. A trace without ``files`` must be downloaded by hand from its ``page``."""

    title: str
    format: str
    page: str
    terms: str
    files: tuple[Remote, ...] = ()
    # the path to replay, relative to the trace's own folder; empty for the folder itself
    opened: str = ""
    after: str = ""  # steps that the user still has to take

    @property
    def bytes(self) -> int | None:
        """The number of bytes to download, or ``None`` if the size of any file is unknown."""
        sizes = [file.bytes for file in self.files]
        return None if not sizes or None in sizes else whole_sum(size for size in sizes if size is not None)


def published_trace(name: str) -> PublishedTrace:
    """Return the published trace called ``name``.

    Raises:
        UnknownName: There is no such trace. The message suggests the nearest.
    """
    if name not in CATALOGUE:
        raise UnknownName(f"unknown trace {name!r}{choices(name, CATALOGUE)} (dagsim trace list)")
    return CATALOGUE[name]


_ALIBABA = "http://aliopentrace.oss-cn-beijing.aliyuncs.com"
_PAI = "https://aliopentrace.oss-cn-beijing.aliyuncs.com/v2020GPUTraces"
_GOOGLE = "https://commondatastorage.googleapis.com/clusterdata-2011-2"
_ARCHIVE = "https://www.cs.huji.ac.il/labs/parallel/workload"
_RAW = "https://raw.githubusercontent.com"
_ALIBABA = f"{_RAW}/alibaba/clusterdata/7a6c496e4f4b6ce6150be8f881cb051bf2abff42"
_OPENB = f"{_ALIBABA}/cluster-trace-gpu-v2023/csv"
_GAVEL = f"{_RAW}/stanford-futuredata/gavel/c4fa40097339e9608ab71fd64c8bdea96a5e4a4c/scheduler/traces/physical_cluster"

_RESEARCH = "research or study only; cite the paper named in its README"
_PWA_TERMS = "free for research; acknowledge the archive and whom the log's header names"

_GOOGLE_2011_JOB = (
    (752545, "921fa8e019fb8ec5be9a2cb096912850d5959da33d9fb3b46807d9d0a9eae86f"),
    (125467, "8d8c0278664757c79b2ce865d3e4e83531abf836e7ed6da3321b8309a3099c58"),
    (140869, "d8ef067adfc1e968816d02ca1f29fdae9fe5d5c92e3a893c72e7754189e22556"),
    (168239, "91560eb58db4b79e420c87b61a2f1c391ff5f35a256a6ec822e39d4bd9419626"),
    (179454, "4957d5114389fe282abf7b73719aa7a61026f1b535337a0bfb067d42cf2442df"),
    (125801, "786e1ca0cf5e726a6d92467162cb4ac8f65d3c1e85a14e561c1292e4117f4821"),
    (93648, "1bf0218832fd22569b182f8df47f071017f79119a78fdf428f099330db6a4c33"),
    (107445, "57677cd0d18129a8b3bb1a9ec01e839da7bb02deb62ba144090b6f9ce5f09b75"),
    (116432, "d6a9f69da401055ed441808bb50aae14649f2b5813147358778e3a11de94fbc3"),
    (118207, "a01d4058f13170fbc60d369bdfbfcc09d387273b294b90c954a4104b6bf40cb1"),
    (131223, "f84162fae224a958147abeee7ca31c12388976e10a9dfcf13f383c2538c94d30"),
    (144631, "815cd35b843b8c815718039653aadf50baa09bd040b48f3de1f3963576e87c5f"),
    (172447, "4933d9d7630de7281278d76cf00cc0eca3a301942de571b045d9ec45ff4abe7f"),
    (162729, "2da3370c10a8d0d7c1d4b23c3c8dab1080e979b6621bec98f53b057b56077893"),
    (191458, "e817d761a3b130bb86674121f44eaef72826b57c47fee01329ee0ba06c11af16"),
    (263108, "af50898012a56c2e28bfc0734965aa4a1a517ea7a7a9831aa3148290d252a36f"),
    (143206, "9b41785a08c2d17a42a5f25a6321246a9a76f1243fc8604c8a1b4e0a25986cfb"),
    (143337, "d1a86f848dc4bb16a737290acf45d5ae81da593bbe0e4e64637e68e9a93df9fc"),
)
_GOOGLE_2011_TASK = (
    (4139742, "eae977d521bc6ed5d8deef56f1e06009d41844d4eb9a7e308e610d68e1b10f18"),
    (924634, "c122f250cf1f9817dc722a5b7457eb5caf122619accfada078de66d40f311501"),
    (1821031, "3534b71a7c6a3952f192485c4726119ff8d904fc2d7b828b8d96987db4aab767"),
    (1335641, "23b3df1b0e6c06d56c0cb28359635931bd0bbb7e584423537e23104580c56740"),
    (1367039, "84f2198e7a083021294ce9c764ba4dcbed6baad30746f257b3580874f802e88e"),
    (1849244, "44dc8e710448bc35a1cb51bbb0b34a8cdf58284606b6038d6e4a016aeee03cfa"),
    (1798429, "39de1a6b85a1f6709b254f94aa46b3c9c2e06c0c6400ec33ce58a66877932cb3"),
    (2229020, "cb64ab984d45ed03f79acca56acfa86f9e0c9a65d145c360187870e0431c8707"),
    (1717774, "a053ab15fb99bd756659214c524e797095465be22193ab552ac6fefb67013733"),
    (3044219, "76641e0bb26bcc102e97b3831f3e2af848c3972eea9b7817d52fef7b5e2c0fa6"),
    (2598263, "36349d2955c59aca87d15e720d0b65f86215125d8dfba43621ed8c5490b571c1"),
    (1874673, "bc212ae79591d733255edc3dd729d66a2ae0294eb4d84e4ee0cc7fcef3f026eb"),
    (2577639, "456adb8ebb712f0d9fc02e419e6deb4cf91202123707ba6c9c8c3af048dc8186"),
)


def _shards(table: str, measured: tuple[tuple[int, str], ...]) -> tuple[Remote, ...]:
    """Return the first shards of a table of Google's 2011 trace."""
    paths = [f"{table}/part-{place:05}-of-00500.csv.gz" for place in range(len(measured))]
    return tuple(
        [Remote(f"{_GOOGLE}/{path}", size, sha256, path) for path, (size, sha256) in zip(paths, measured, strict=True)]
    )


def _archived(title: str, folder: str, log: str, size: int | None = None, sha256: str | None = None) -> PublishedTrace:
    """Return a log from the Parallel Workloads Archive."""
    file = Remote(f"{_ARCHIVE}/{folder}/{log}.swf.gz", size, sha256)
    return PublishedTrace(title, "swf", f"{_ARCHIVE}/{folder}/", _PWA_TERMS, (file,), file.name)


CATALOGUE: dict[str, PublishedTrace] = {
    "acme": PublishedTrace(
        "Acme (Shanghai AI Laboratory): 880,740 jobs of two clusters for LLM development, 2023",
        "acme",
        "https://github.com/InternLM/AcmeTrace",
        "academic purposes; cite Hu et al., NSDI 2024",
        (
            Remote(f"{_RAW}/InternLM/AcmeTrace/HEAD/data/job_trace/trace_seren.csv"),
            Remote(f"{_RAW}/InternLM/AcmeTrace/HEAD/data/job_trace/trace_kalos.csv"),
        ),
        "trace_seren.csv",
    ),
    "alibaba2026-spot": PublishedTrace(
        "Alibaba cluster-trace-v2026-spot-gpu (GFS): high-priority and spot jobs, 4,278 GPU nodes",
        "alibaba2026",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-v2026-spot-gpu",
        _RESEARCH,
        (
            Remote(f"{_RAW}/alibaba/clusterdata/HEAD/cluster-trace-v2026-spot-gpu/job_info_df.csv"),
            Remote(f"{_RAW}/alibaba/clusterdata/HEAD/cluster-trace-v2026-spot-gpu/node_info_df.csv"),
        ),
        "job_info_df.csv",
    ),
    "eagle": PublishedTrace(
        "Eagle (NREL): 11,030,377 Slurm jobs, November 2018 to February 2023",
        "eagle",
        "https://data.openei.org/submissions/5860",
        "see its page",
        (Remote("https://data.openei.org/files/5860/eagle_data.parquet"),),
        "eagle_data.parquet",
    ),
    "kestrel": PublishedTrace(
        "Kestrel (NLR): 10,559,977 Slurm jobs, August 2023 to December 2025",
        "kestrel",
        "https://data.openei.org/submissions/8643",
        "see its page",
    ),
    "frontier": PublishedTrace(
        "Frontier (OLCF): 152,400 whole-node jobs, January 2024 to December 2025",
        "frontier",
        "https://doi.org/10.13139/OLCF/3013979",
        "free to use and reuse; the job table is frontier-completed-job-info.parquet",
    ),
    "pm100": PublishedTrace(
        "PM100 (CINECA Marconi100): Slurm jobs with measured power, May to October 2020",
        "pm100",
        "https://doi.org/10.5281/zenodo.8129257",
        "see its page; cite Antici et al. 2023",
    ),
    "fdata": PublishedTrace(
        "F-DATA (RIKEN Fugaku): jobs from March 2021 to April 2024, a Parquet file for each month",
        "fdata",
        "https://zenodo.org/records/11467483",
        "see its page; cite Antici et al., Scientific Data 2025",
    ),
    "slurm-events": PublishedTrace(
        "Workload of the Slurm simulator's micro cluster: 500 jobs",
        "slurm-events",
        "https://github.com/ubccr-slurm-simulator/slurm_sim_tools",
        "see its page",
        (
            Remote(
                f"{_RAW}/ubccr-slurm-simulator/slurm_sim_tools/ebb44157aad6a0a4b103e3a5eeadbb52215085bc/"
                "tutorials/micro_cluster/workload/jobs500.events"
            ),
        ),
        "jobs500.events",
    ),
    "alibaba2017": PublishedTrace(
        "Alibaba cluster-trace-v2017: 12 hours, 12,951 batch jobs without edges",
        "alibaba2017",
        "https://github.com/alibaba/clusterdata",
        _RESEARCH,
        (Remote(f"{_ALIBABA}/v2017Traces/alibaba-trace-2017.tar.gz"),),
        "alibaba-trace-2017.tar.gz",
    ),
    "alibaba2018": PublishedTrace(
        "Alibaba cluster-trace-v2018: 8 days of batch jobs, most of them DAGs, and the machines",
        "alibaba2018",
        "https://github.com/alibaba/clusterdata",
        _RESEARCH,
        (
            Remote(
                f"{_ALIBABA}/v2018Traces/batch_task.tar.gz",
                sha256="7c4b32361bd1ec2083647a8f52a6854a03bc125ca5c202652316c499fbf978c6",
            ),
            Remote(f"{_ALIBABA}/v2018Traces/machine_meta.tar.gz"),
        ),
        "batch_task.tar.gz",
    ),
    "pai2020": PublishedTrace(
        "Alibaba PAI cluster-trace-gpu-v2020: 2 months on 6,500 GPUs",
        "pai2020",
        "https://github.com/alibaba/clusterdata",
        "CC BY 4.0; cite Weng et al., NSDI 2022",
        (
            Remote(
                f"{_PAI}/pai_job_table.tar.gz",
                sha256="5aad7f7caac501136d14ed6a48e40546f825d7b0617a3a4f337e2348fe0a6cb0",
            ),
            Remote(
                f"{_PAI}/pai_task_table.tar.gz",
                sha256="cd1d6dc3215d2a8607ccf6b6dd952b5db776df86926c73259fea7c1499ac40e5",
            ),
            Remote(
                f"{_PAI}/pai_instance_table.tar.gz",
                sha256="1bf1e423a7ce3f8d086699801c362fd56a7182abdb234139e5ebbed97995ca06",
            ),
            Remote(
                f"{_PAI}/pai_group_tag_table.tar.gz",
                sha256="722fef30b7fb7aa50dabd79155614b5423a9d65cf45a9b26c590d57725423a14",
            ),
            Remote(
                f"{_PAI}/pai_machine_spec.tar.gz",
                30_449,
                "cc0d38a4045af1b1af8179de8b1b54b1ddd995e6160d6d061a6b1000f1276c2d",
            ),
        ),
    ),
    "openb2023": PublishedTrace(
        "Alibaba cluster-trace-gpu-v2023 (openb): 8,152 pods, 1,523 nodes",
        "openb2023",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2023/csv",
        _RESEARCH,
        (
            Remote(
                f"{_OPENB}/openb_pod_list_default.csv",
                575_468,
                "1ee7ed79c27a3b0861cda8ddba86a004c6aba904caafa329a76ae93ca63834a8",
            ),
            Remote(
                f"{_OPENB}/openb_node_list_all_node.csv",
                52_287,
                "5a85c2af79c66a1efff8bbcbda430400aae56d8431370d738480967e1a9c6b15",
            ),
        ),
        "openb_pod_list_default.csv",
    ),
    "alibaba2025": PublishedTrace(
        "Alibaba cluster-trace-gpu-v2025 (Prism): 23,871 instances of 156 inference services",
        "alibaba2025",
        "https://github.com/alibaba/clusterdata/tree/master/cluster-trace-gpu-v2025",
        _RESEARCH,
        (
            Remote(
                f"{_ALIBABA}/cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv",
                2_118_900,
                "fb17bc4b3f412d5280f70f04a1bdf2adfc4429d1e61237a5b106e86206414295",
            ),
        ),
        "disaggregated_DLRM_trace.csv",
    ),
    "google2011": PublishedTrace(
        "Google ClusterData2011_2: the first 18 hours (13 of 500 shards) and the machines",
        "google2011",
        "https://github.com/google/cluster-data",
        "CC BY 4.0",
        (
            *_shards("task_events", _GOOGLE_2011_TASK),
            *_shards("job_events", _GOOGLE_2011_JOB),
            Remote(
                f"{_GOOGLE}/machine_events/part-00000-of-00001.csv.gz",
                path="machine_events/part-00000-of-00001.csv.gz",
            ),
        ),
    ),
    "google2019": PublishedTrace(
        "Google ClusterData2019 (v3): 8 cells",
        "google2019",
        "BigQuery, project google.com:google-cluster-data, datasets clusterdata_2019_a to _h",
        "CC BY 4.0",
    ),
    "philly": PublishedTrace(
        "Microsoft Philly 2017: the official job log and machine list",
        "philly",
        "https://github.com/msr-fiddle/philly-traces",
        "CC BY 4.0",
        (
            Remote(
                "https://github.com/msr-fiddle/philly-traces/raw/HEAD/trace-data.tar.gz",
                1_055_988_361,
                "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c",
            ),
        ),
        "trace-data.tar.gz",
    ),
    "helios": PublishedTrace(
        "SenseTime Helios 2020: four clusters",
        "helios",
        "https://github.com/S-Lab-System-Group/HeliosData",
        "CC BY 4.0",
        (Remote("https://github.com/S-Lab-System-Group/HeliosData/raw/HEAD/data.zip"),),
        after="unzip data.zip; the trace of a cluster is its folder, such as data/Venus",
    ),
    "itp": PublishedTrace(
        "Microsoft ITP 2021: 69,351 jobs on ten clusters",
        "itp",
        "https://github.com/microsoft/elasticflow-traces/tree/main/data",
        "MIT",
        (
            Remote(
                f"{_RAW}/microsoft/elasticflow-traces/HEAD/data/raw-traces.tar.gz",
                1_943_846,
                "67398e1a89245c50ae0881bf997e6cda0c95f9f47980af5bc56d67998965669f",
            ),
        ),
        "raw-traces.tar.gz",
    ),
    "itp-elasticflow": PublishedTrace(
        "The ITP clusters with the models and deadlines of ElasticFlow",
        "itp",
        "https://github.com/microsoft/elasticflow-traces/tree/main/data",
        "MIT",
        (
            Remote(
                f"{_RAW}/microsoft/elasticflow-traces/HEAD/data/elasticflow-traces.tar.gz",
                2_599_482,
                "e9c20b73de61d2702aef086aebc995cbc432affbd0f09969cf30879c5d1a83c4",
            ),
        ),
        "elasticflow-traces.tar.gz",
    ),
    "gavel": PublishedTrace(
        "Gavel's list for its physical cluster: 100 jobs at once (minimize_makespan)",
        "gavel",
        "https://github.com/stanford-futuredata/gavel",
        "MIT",
        (
            Remote(
                f"{_GAVEL}/minimize_makespan.trace",
                14_099,
                "b00befc3fc2a62c1776fd70d978065e3fb1ae75fd06b37557f2425fe51556bc5",
            ),
        ),
        "minimize_makespan.trace",
    ),
    "shockwave": PublishedTrace(
        "Shockwave's 120 jobs with batch sizes that change",
        "gavel",
        "https://github.com/uw-mad-dash/shockwave",
        "MIT",
        (
            Remote(
                f"{_RAW}/uw-mad-dash/shockwave/HEAD/scheduler/traces/reproduce/"
                "120_0.2_5_100_40_25_0,0.5,0.5_0.6,0.3,0.09,0.01_multigpu_dynamic.trace",
                18_720,
                "f5728b8c038c330d21b98bc5930949d21769bd956e2ad457a4eb167dd33f34d6",
                "shockwave_120.trace",
            ),
        ),
        "shockwave_120.trace",
    ),
    "tiresias": PublishedTrace(
        "Tiresias' 60 jobs",
        "tiresias",
        "https://github.com/SymbioticLab/Tiresias",
        "Apache-2.0",
        (
            Remote(
                f"{_RAW}/SymbioticLab/Tiresias/HEAD/simulator/60_job.csv",
                1_871,
                "17575949a6e570960db42bc5576739de9c334ed4c664859841c4f01ede38bd1b",
            ),
        ),
        "60_job.csv",
    ),
    "ctc-sp2": _archived(
        "CTC SP2 1996: 77,222 jobs on 338 processors",
        "l_ctc_sp2",
        "CTC-SP2-1996-3.1-cln",
        1_487_336,
        "9fa28ac16c4386fb81b72a91d8bd8888281df2948a9d912769d387c5ee285bb4",
    ),
    "hpc2n": _archived(
        "HPC2N 2002: 202,871 jobs on 240 processors",
        "l_hpc2n",
        "HPC2N-2002-2.2-cln",
        2_997_773,
        "3c534857d6065cfd9cc35aac8d064c9c17172be7acf336de835006f43a626e64",
    ),
    "sdsc-sp2": _archived(
        "SDSC SP2 1998",
        "l_sdsc_sp2",
        "SDSC-SP2-1998-4.2-cln",
        sha256="e03fe48be50c4ab04d6bb2285296d9c3399e9c1f27ee79b754ad32a14abd9bac",
    ),
    "kth-sp2": _archived("KTH SP2 1996: 27,992 jobs on 100 processors", "l_kth_sp2", "KTH-SP2-1996-2.1-cln"),
    "sdsc-blue": _archived(
        "SDSC Blue Horizon 2000: 243,306 jobs on 1,152 processors", "l_sdsc_blue", "SDSC-BLUE-2000-4.2-cln"
    ),
    "nasa-ipsc": _archived(
        "NASA Ames iPSC/860 1993: 18,239 jobs on 128 processors", "l_nasa_ipsc", "NASA-iPSC-1993-3.1-cln"
    ),
    "llnl-thunder": _archived(
        "LLNL Thunder 2007: 121,039 jobs on 4,008 processors", "l_llnl_thunder", "LLNL-Thunder-2007-1.1-cln"
    ),
    "cea-curie": _archived(
        "CEA Curie 2011: 312,826 jobs on 93,312 processors", "l_cea_curie", "CEA-Curie-2011-2.1-cln"
    ),
    "lcg": _archived("LHC Computing Grid 2005: 188,041 jobs of one processor", "l_lcg", "LCG-2005-1"),
    "metacentrum": _archived("MetaCentrum 2009: 103,656 jobs", "l_metacentrum", "METACENTRUM-2009-2"),
    "ricc": _archived("RIKEN RICC 2010: 447,794 jobs", "l_ricc", "RICC-2010-2"),
    "wfcommons": PublishedTrace(
        "WfCommons WfInstances: real executions of scientific workflows",
        "wfcommons",
        "https://github.com/wfcommons/WfInstances",
        "LGPL-3.0",
    ),
    "dax": PublishedTrace(
        "Pegasus workflow gallery: synthetic workflows of 24 to 1,000 jobs",
        "dax",
        "https://confluence.pegasus.isi.edu/display/pegasus/WorkflowGenerator",
        "no licence stated",
    ),
    "stg": PublishedTrace(
        "Standard Task Graph set with optimal makespans",
        "stg",
        "http://www.kasahara.cs.waseda.ac.jp/schedule/",
        "freely distributed; cite Tobita and Kasahara 2002",
    ),
    "pipedream": PublishedTrace(
        "PipeDream's profiles of 14 networks (profiler/*/profiles/*/graph.txt)",
        "pipedream",
        "https://github.com/msr-fiddle/pipedream",
        "MIT",
    ),
    "tpch": PublishedTrace(
        "Decima's TPC-H profiles: 154 Spark queries",
        "tpch",
        "https://github.com/hongzimao/decima-sim",
        "no licence stated",
    ),
}
